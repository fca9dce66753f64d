"""The paper's two phases: explore without reward, then adapt to a task that is named only afterwards."""

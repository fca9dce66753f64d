"""Trains a PyTorch model on what a run collected: the next vector from this one and the action. Needs torch.

python examples/dataloader.py runs/pendulum
"""

from pathlib import Path

import torch
import tyro

import plan2explore as p2e


def main(path: tyro.conf.Positional[Path], steps: int = 500) -> None:
    """Fits a one-step model.

    Args:
        path: Folder of a run whose agent observes vectors.
        steps: Gradient steps.
    """
    dataset = p2e.Run(path).dataset(length=2)
    loader = torch.utils.data.DataLoader(dataset, batch_size=64, shuffle=True)
    proprio, action = (dataset[0][name].shape[-1] for name in ("proprio", "action"))
    net = torch.nn.Sequential(torch.nn.Linear(proprio + action, 64), torch.nn.ELU(), torch.nn.Linear(64, proprio))
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    done = 0
    while done < steps:
        for batch in loader:
            now, after = batch["proprio"].unbind(1)
            within = ~batch["is_first"][:, 1]  # windows that do not run into the next episode
            change = net(torch.cat([now, batch["action"][:, 1]], 1))
            loss = torch.nn.functional.mse_loss((now + change)[within], after[within])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            done += 1
    print(f"squared error of the next step after {done} steps: {loss.item():.2g}")


if __name__ == "__main__":
    tyro.cli(main)

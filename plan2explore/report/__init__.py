"""What people look at: pictures, videos, and later curves, tables and pages."""

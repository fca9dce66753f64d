"""What people look at: pictures, videos, curves, tables and pages."""

"""What must survive a power cut: durable writing, the workspace, checkpoints, the audit log."""

"""The way to a phone and back: push a bundle, run verbs there, pull what they made. Uses the system's own ssh and adb."""

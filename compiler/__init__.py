"""The part of MobileFineTuner that runs on the desktop: recipe in, bundle out."""

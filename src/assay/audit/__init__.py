"""The audit: is this reward function sound?"""

"""The doctor: why does this run not improve?"""

"""Boards: tables of results that anybody can verify again.

    leaderboards/<board>/v<N>/
        protocol.toml        what is measured and how rows are ranked; frozen
        entries/<id>.json    one row each: record headers, or a paper's numbers
        entries.lock.json    SHA-256 of every entry ever added; only grows
        withdrawals/<id>.json  why a row no longer counts
        README.md            generated: a pure function of the files above

Imports no torch and no pandas.
"""

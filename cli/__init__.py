"""The command line: one module a verb or a family of verbs, imported when the verb is asked for."""

"""The errors a user can cause; commands print their message alone and exit with status 2."""


class ConfigError(ValueError):
    """A setting is wrong. The message names the key, says what is wrong and what would be right."""


class PluginNeeded(ConfigError):
    """A setting names what neither the package nor a plugin that is loaded has."""


class DataError(ValueError):
    """A file or a data set is wrong. The message names the file and line, and says what would be right."""

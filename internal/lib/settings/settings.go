// Package settings reads the settings of the daemons, and provides what all of them need: the
// logger and the settings of the etcd client.
package settings

import (
	"fmt"
	"slices"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
)

// EnvPrefix begins the environment variables of the settings: --api-socket is
// SLUICE_API_SOCKET.
const EnvPrefix = "SLUICE_"

// Load reads settings into a T, whose fields name their keys by the tag koanf. A flag
// takes precedence over the environment, that over the file, that over the default of the flag.
// Each setting is a flag, an environment variable (--api-socket is SLUICE_API_SOCKET)
// and a key in the file of --config, or of SLUICE_CONFIG. An unknown key in the file is
// an error; unknown variables are ignored, since they may belong to other programs. Empty ones
// are ignored, too.
func Load[T any](flags *pflag.FlagSet, environ []string) (T, error) {
	var none T
	k, _, err := given(flags, environ)
	if err != nil {
		return none, err
	}
	fromFlags := posflag.ProviderWithFlag(flags, "\x00", k, func(f *pflag.Flag) (string, any) {
		name := currentName(f)
		if name != f.Name && !f.Changed {
			return "", nil // an old name that was not given
		}
		return name, posflag.FlagVal(flags, f)
	})
	if err := k.Load(fromFlags, nil); err != nil {
		return none, fmt.Errorf("settings in flags: %w", err)
	}
	var c T
	if err := k.Unmarshal("", &c); err != nil {
		return none, fmt.Errorf("settings: %w", err)
	}
	return c, nil
}

// Given returns the current names of the settings that flags, the environment or the file give,
// sorted.
func Given(flags *pflag.FlagSet, environ []string) ([]string, error) {
	k, _, err := given(flags, environ)
	if err != nil {
		return nil, err
	}
	names := k.Keys()
	flags.Visit(func(f *pflag.Flag) { names = append(names, currentName(f)) })
	slices.Sort(names)
	return slices.Compact(names), nil
}

// given reads the file and the environment, and returns also what was given by an old name, flags
// included.
func given(flags *pflag.FlagSet, environ []string) (*koanf.Koanf, []Deprecation, error) {
	k, inFile, err := fromFile(flags, environ)
	if err != nil {
		return nil, nil, err
	}
	inEnv, ofEnv, err := fromEnvironment(flags, environ)
	if err != nil {
		return nil, nil, err
	}
	ofFlags, err := flagDeprecations(flags)
	if err != nil {
		return nil, nil, err
	}
	return k, slices.Concat(inFile, ofEnv, ofFlags), k.Merge(inEnv)
}

// newKoanf returns an empty set of settings. Keys are flat; the delimiter occurs in none.
func newKoanf() *koanf.Koanf { return koanf.New("\x00") }

func fromFile(flags *pflag.FlagSet, environ []string) (*koanf.Koanf, []Deprecation, error) {
	k := newKoanf()
	path := configPath(flags, environ)
	if path == "" {
		return k, nil, nil
	}
	err := k.Load(file.Provider(path), yaml.Parser())
	if err == nil {
		err = checkFile(k, flags)
	}
	var old []Deprecation
	if err == nil {
		old, err = useCurrentNames(k, flags, func(name string) string { return path + ": " + name })
	}
	if err != nil {
		return nil, nil, fmt.Errorf("settings in %s: %w", path, err)
	}
	return k, old, nil
}

func fromEnvironment(flags *pflag.FlagSet, environ []string) (*koanf.Koanf, []Deprecation, error) {
	k := newKoanf()
	provider := env.Provider("\x00", env.Opt{
		Prefix:      EnvPrefix,
		EnvironFunc: func() []string { return environ },
		TransformFunc: func(key, value string) (string, any) {
			name := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(key, EnvPrefix)), "_", "-")
			f := flags.Lookup(name)
			switch {
			case f == nil || value == "":
				return "", nil // another program's variable, or no setting
			case f.Value.Type() == "stringSlice":
				return name, splitList(value)
			}
			return name, value
		},
	})
	if err := k.Load(provider, nil); err != nil {
		return nil, nil, fmt.Errorf("settings in the environment: %w", err)
	}
	for _, name := range k.Keys() {
		if why := valueProblem(flags.Lookup(name), k.Get(name)); why != "" {
			return nil, nil, fmt.Errorf("%s: %s", variable(name), why)
		}
	}
	old, err := useCurrentNames(k, flags, variable)
	return k, old, err
}

// variable returns the environment variable of a setting.
func variable(name string) string {
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// configPath returns the path of the file with settings: that of --config, or of its
// environment variable.
func configPath(flags *pflag.FlagSet, environ []string) string {
	if path, _ := flags.GetString("config"); path != "" {
		return path
	}
	for _, v := range environ {
		if path, ok := strings.CutPrefix(v, EnvPrefix+"CONFIG="); ok {
			return path
		}
	}
	return ""
}

// splitList reads a list of an environment variable; an empty one has no items.
func splitList(value string) []string {
	var items []string
	for item := range strings.SplitSeq(value, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

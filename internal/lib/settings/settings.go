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
	k, err := given(flags, environ)
	if err != nil {
		return none, err
	}
	if err := k.Load(posflag.Provider(flags, "\x00", k), nil); err != nil {
		return none, fmt.Errorf("settings in flags: %w", err)
	}
	var c T
	if err := k.Unmarshal("", &c); err != nil {
		return none, fmt.Errorf("settings: %w", err)
	}
	return c, nil
}

// Given returns the names of the settings that flags, the environment or the file give,
// sorted.
func Given(flags *pflag.FlagSet, environ []string) ([]string, error) {
	k, err := given(flags, environ)
	if err != nil {
		return nil, err
	}
	names := k.Keys()
	flags.Visit(func(f *pflag.Flag) { names = append(names, f.Name) })
	slices.Sort(names)
	return slices.Compact(names), nil
}

// given reads the file and the environment.
func given(flags *pflag.FlagSet, environ []string) (*koanf.Koanf, error) {
	k, err := fromFile(flags, environ)
	if err != nil {
		return nil, err
	}
	inEnv, err := fromEnvironment(flags, environ)
	if err != nil {
		return nil, err
	}
	return k, k.Merge(inEnv)
}

// newKoanf returns an empty set of settings. Keys are flat; the delimiter occurs in none.
func newKoanf() *koanf.Koanf { return koanf.New("\x00") }

func fromFile(flags *pflag.FlagSet, environ []string) (*koanf.Koanf, error) {
	k := newKoanf()
	path := configPath(flags, environ)
	if path == "" {
		return k, nil
	}
	err := k.Load(file.Provider(path), yaml.Parser())
	if err == nil {
		err = checkFile(k, flags)
	}
	if err != nil {
		return nil, fmt.Errorf("settings in %s: %w", path, err)
	}
	return k, nil
}

func fromEnvironment(flags *pflag.FlagSet, environ []string) (*koanf.Koanf, error) {
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
		return nil, fmt.Errorf("settings in the environment: %w", err)
	}
	for _, name := range k.Keys() {
		if why := valueProblem(flags.Lookup(name), k.Get(name)); why != "" {
			return nil, fmt.Errorf("%s: %s", variable(name), why)
		}
	}
	return k, nil
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

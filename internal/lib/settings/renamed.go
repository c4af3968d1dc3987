package settings

import (
	"fmt"
	"maps"
	"slices"

	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
)

// renamedTo is the annotation of a flag that is the old name of a setting; its value is the new
// name.
const renamedTo = "sluice_renamed_to"

// Deprecation is a setting that was given by its old name: a flag, an environment variable or a
// key of the file.
type Deprecation struct{ Given, Use string }

// Rename keeps an old name of the setting name working, as a flag, as an environment variable and
// as a key of the file. Help does not show the old name.
func Rename(f *pflag.FlagSet, old, name string) {
	now := f.Lookup(name)
	f.AddFlag(&pflag.Flag{
		Name: old, Usage: "renamed to --" + name, Hidden: true, Annotations: map[string][]string{renamedTo: {name}},
		Value: now.Value, DefValue: now.DefValue, NoOptDefVal: now.NoOptDefVal,
	})
}

// currentName returns the name that the setting of a flag has now.
func currentName(f *pflag.Flag) string {
	if to := f.Annotations[renamedTo]; len(to) > 0 {
		return to[0]
	}
	return f.Name
}

// Deprecations returns the settings that were given by an old name: those of the file first, then
// those of the environment and those of flags.
func Deprecations(flags *pflag.FlagSet, environ []string) ([]Deprecation, error) {
	_, out, err := given(flags, environ)
	return out, err
}

// useCurrentNames moves the values of old names in k to the new names. shown returns how the
// source of k spells a name. A setting with both names is an error.
func useCurrentNames(k *koanf.Koanf, flags *pflag.FlagSet, shown func(string) string) (out []Deprecation, err error) {
	for _, old := range slices.Sorted(slices.Values(k.Keys())) {
		now := currentName(flags.Lookup(old))
		if now == old {
			continue
		}
		if k.Exists(now) {
			return nil, bothNames(shown(old), shown(now))
		}
		out = append(out, Deprecation{shown(old), shown(now)})
		if err := k.Set(now, k.Get(old)); err != nil {
			return nil, fmt.Errorf("%s: %w", shown(old), err)
		}
		k.Delete(old)
	}
	return out, nil
}

// flagDeprecations returns the flags of a command line that are old names.
func flagDeprecations(flags *pflag.FlagSet) (out []Deprecation, err error) {
	names := map[string]bool{}
	flags.Visit(func(f *pflag.Flag) { names[f.Name] = true })
	for _, old := range slices.Sorted(maps.Keys(names)) {
		now := currentName(flags.Lookup(old))
		switch {
		case now == old:
		case names[now]:
			return nil, bothNames("--"+old, "--"+now)
		default:
			out = append(out, Deprecation{"--" + old, "--" + now})
		}
	}
	return out, nil
}

func bothNames(old, now string) error {
	return fmt.Errorf("%s is the old name of %s, and both are given: leave %s out", old, now, old)
}

package settings

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"

	"github.com/sluice-net/sluice/plugins/ksr/strict"
)

// checkFile refuses unknown settings, since a typo must not silently become a default, and invalid
// values.
func checkFile(k *koanf.Koanf, flags *pflag.FlagSet) error {
	var errs []error
	for name, value := range k.Raw() {
		f := flags.Lookup(name)
		if f == nil || name == "config" || name == "help" {
			errs = append(errs, unknownKey(name, flags))
		} else if why := valueProblem(f, value); why != "" {
			errs = append(errs, fmt.Errorf("%s: %s", name, why))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

// mostKeys is how many keys an error lists.
const mostKeys = 10

func unknownKey(name string, flags *pflag.FlagSet) error {
	names := flagNames(flags)
	if likely, ok := strict.Nearest(name, names); ok {
		return fmt.Errorf("unknown key %q: did you mean %s?", name, likely)
	}
	if len(names) > mostKeys {
		return fmt.Errorf("unknown key %q: it is like none of the %d keys, which --help lists", name, len(names))
	}
	return fmt.Errorf("unknown key %q; the keys are %s", name, strings.Join(names, ", "))
}

// valueProblem returns why a value of the file or of the environment is invalid, empty when it is
// valid. Values of flags are checked where they are parsed.
func valueProblem(f *pflag.Flag, value any) string {
	text := fmt.Sprint(value)
	switch value.(type) {
	case map[string]any:
		return "want a value, not a mapping"
	case []any, []string:
		if f.Value.Type() != "stringSlice" {
			return "want one value, not a list"
		}
	}
	switch f.Value.Type() {
	case "bool":
		if _, err := strconv.ParseBool(text); err != nil {
			return fmt.Sprintf("%q: want true or false", text)
		}
	case "duration":
		if _, err := time.ParseDuration(text); err != nil {
			return fmt.Sprintf("%q: want a duration with its unit, such as 30s or 5m", text)
		}
	case "uint32":
		if _, err := strconv.ParseUint(text, 10, 32); err != nil {
			return fmt.Sprintf("%q: want a number from 0 to 4294967295", text)
		}
	}
	return ""
}

func flagNames(flags *pflag.FlagSet) (names []string) {
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name != "config" && f.Name != "help" && !f.Hidden {
			names = append(names, f.Name)
		}
	})
	slices.Sort(names)
	return names
}

package config

import (
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

// TestSettingsPageSaysWhenToChangeEach: a setting that nobody changes is a constant.
func TestSettingsPageSaysWhenToChangeEach(t *testing.T) {
	text, err := os.ReadFile("../../../docs/reference/settings.md")
	if err != nil {
		t.Fatal(err)
	}
	var named, want []string
	for _, row := range regexp.MustCompile("(?m)^\\| `--.*\\| (\\S.*)\\|$").FindAllString(string(text), -1) {
		for _, name := range regexp.MustCompile("`--([a-z0-9-]+)`").FindAllStringSubmatch(row[:len(row)-1], -1) {
			named = append(named, name[1])
		}
	}
	flags := pflag.NewFlagSet("run", pflag.ContinueOnError)
	RunFlags(flags)
	flags.VisitAll(func(f *pflag.Flag) { want = append(want, f.Name) })
	slices.Sort(named)
	slices.Sort(want)
	if diff := cmp.Diff(want, named); diff != "" {
		t.Errorf("docs/reference/settings.md (-settings +named):\n%s", diff)
	}
}

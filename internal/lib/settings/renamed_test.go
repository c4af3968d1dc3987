package settings

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

type renamed struct {
	Wait  time.Duration `koanf:"wait-period"`
	Block bool          `koanf:"block-it"`
	Items []string      `koanf:"item-list"`
}

func renamedFlags() *pflag.FlagSet {
	f := pflag.NewFlagSet("d", pflag.ContinueOnError)
	f.String("config", "", "")
	f.Duration("wait-period", time.Second, "how long")
	f.Bool("block-it", true, "whether")
	f.StringSlice("item-list", []string{"a"}, "which")
	Rename(f, "wait", "wait-period")
	Rename(f, "hold-it", "block-it")
	Rename(f, "items", "item-list")
	return f
}

func TestRenameAcceptsOldNamesFromEverySource(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d.yaml")
	none := renamed{time.Second, true, []string{"a"}}
	for _, tc := range []struct {
		name, file string
		env, args  []string
		want       renamed
		deprecated []Deprecation
		given      []string
		err        string
	}{
		{name: "nothing", want: none},
		{name: "flags", args: []string{"--wait", "2s", "--hold-it=false", "--items", "b,c", "--items", "d"},
			want:       renamed{2 * time.Second, false, []string{"b", "c", "d"}},
			deprecated: []Deprecation{{"--hold-it", "--block-it"}, {"--items", "--item-list"}, {"--wait", "--wait-period"}},
			given:      []string{"block-it", "item-list", "wait-period"}},
		{name: "a bool flag needs no value", file: "block-it: false", args: []string{"--hold-it"}, want: none,
			deprecated: []Deprecation{{"--hold-it", "--block-it"}}, given: []string{"block-it"}},
		{name: "environment", env: []string{"SLUICE_WAIT=3s", "SLUICE_ITEMS=b,c", "SLUICE_HOLD_IT=false"},
			want:       renamed{3 * time.Second, false, []string{"b", "c"}},
			deprecated: []Deprecation{{"SLUICE_HOLD_IT", "SLUICE_BLOCK_IT"}, {"SLUICE_ITEMS", "SLUICE_ITEM_LIST"}, {"SLUICE_WAIT", "SLUICE_WAIT_PERIOD"}},
			given:      []string{"block-it", "item-list", "wait-period"}},
		{name: "file", file: "wait: 4s\nhold-it: false\nitems: []", want: renamed{4 * time.Second, false, []string{}},
			deprecated: []Deprecation{{path + ": hold-it", path + ": block-it"}, {path + ": items", path + ": item-list"}, {path + ": wait", path + ": wait-period"}},
			given:      []string{"block-it", "item-list", "wait-period"}},
		{name: "a flag by its old name wins over a file by the new one", file: "wait-period: 4s", env: []string{"SLUICE_WAIT=3s"}, args: []string{"--wait", "2s"},
			want:       renamed{2 * time.Second, true, []string{"a"}},
			deprecated: []Deprecation{{"SLUICE_WAIT", "SLUICE_WAIT_PERIOD"}, {"--wait", "--wait-period"}}, given: []string{"wait-period"}},
		{name: "a flag by its new name wins over a file by the old one", file: "wait: 4s", args: []string{"--wait-period", "2s"},
			want:       renamed{2 * time.Second, true, []string{"a"}},
			deprecated: []Deprecation{{path + ": wait", path + ": wait-period"}}, given: []string{"wait-period"}},
		{name: "both flags", args: []string{"--wait", "2s", "--wait-period", "2s"}, err: "--wait is the old name of --wait-period, and both are given: leave --wait out"},
		{name: "both variables", env: []string{"SLUICE_WAIT=2s", "SLUICE_WAIT_PERIOD=2s"}, err: "SLUICE_WAIT is the old name of SLUICE_WAIT_PERIOD"},
		{name: "both keys", file: "wait: 2s\nwait-period: 2s", err: path + ": wait is the old name of " + path + ": wait-period"},
		{name: "a bad value in the file", file: "wait: soon", err: `wait: "soon": want a duration`},
		{name: "a bad value in the environment", env: []string{"SLUICE_WAIT=soon"}, err: `SLUICE_WAIT: "soon": want a duration`},
		{name: "an unknown key is offered the new name", file: "wait-perio: 2s", err: "did you mean wait-period?"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			env := tc.env
			if tc.file != "" {
				if err := os.WriteFile(path, []byte(tc.file), 0o600); err != nil {
					t.Fatal(err)
				}
				env = append(slices.Clone(env), "SLUICE_CONFIG="+path)
			}
			f := renamedFlags()
			if err := f.Parse(tc.args); err != nil {
				t.Fatal(err)
			}
			got, err := Load[renamed](f, env)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) {
					t.Fatalf("%v, want %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("settings (-want +got):\n%s", d)
			}
			deprecated, err := Deprecations(f, env)
			if d := cmp.Diff(tc.deprecated, deprecated); err != nil || d != "" {
				t.Errorf("deprecations: %v\n%s", err, d)
			}
			given, err := Given(f, env)
			given = slices.DeleteFunc(given, func(name string) bool { return name == "config" })
			if err != nil || !slices.Equal(given, tc.given) {
				t.Errorf("given: %v, %v, want %v", given, err, tc.given)
			}
		})
	}
	if usages := renamedFlags().FlagUsages(); strings.Contains(usages, "--wait ") || !strings.Contains(usages, "--wait-period") {
		t.Errorf("help: %s", usages)
	}
}

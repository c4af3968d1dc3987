package settings

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func TestEtcdClientRefusesInvalidEndpoints(t *testing.T) {
	for _, tc := range []struct{ endpoints, want string }{
		{"10.0.0.1:2379", ""},
		{"10.0.0.1:2379,https://[fd00::1]:2379,http://etcd.example:1/", ""},
		{"unix:///run/etcd.sock", ""},
		{"https://fd00::1:2379,fd00::1:2379", ""},
		{"fd00::1", "too many colons in address"},
		{"", "--etcd-endpoints is empty: want host:port"},
		{"foo:bar:baz", `--etcd-endpoints "foo:bar:baz": too many colons in address; want host:port`},
		{"a:1,b", `--etcd-endpoints "b": missing port in address`},
		{"a:1, b:2", `--etcd-endpoints " b:2": " b" is not the name of a host`},
		{":2379", "the host is missing"},
		{"a:port", `port "port" is not a number from 1 to 65535`},
		{"a:0", `port "0" is not`},
		{"a:65536", `port "65536" is not`},
		{"ftp://a:1", `unknown scheme "ftp"`},
		{"://a:1", `unknown scheme ""`},
		{"http://a", "missing port"},
		{"http://a:1/path", "something follows the port"},
		{"http://me:secret@a:1", "--etcd-user"},
		{"http://a:1%zz", "--etcd-endpoints"},
		{"unix://", "the path of the socket is missing"},
	} {
		var endpoints []string
		if tc.endpoints != "" {
			endpoints = strings.Split(tc.endpoints, ",")
		}
		_, err := Etcd{Endpoints: endpoints}.Client()
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q: %v, want %q", tc.endpoints, err, tc.want)
		}
	}
}

func TestEtcdClientNamesFlagOfUnreadableFile(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, e := range map[string]Etcd{
		"--etcd-ca: open /no/ca: no such file":       {CA: "/no/ca"},
		"--etcd-ca " + empty + ": no certificate":    {CA: empty},
		"--etcd-cert and --etcd-key belong together": {Key: empty},
		"--etcd-cert /no/cert and --etcd-key /no/k:": {Cert: "/no/cert", Key: "/no/k"},
	} {
		e.Endpoints = []string{"a:1"}
		if _, err := e.Client(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// daemon has a setting of each type.
type daemon struct {
	Name string   `koanf:"name-of-it"`
	List []string `koanf:"some-list"`
}

func daemonFlags() *pflag.FlagSet {
	f := pflag.NewFlagSet("daemon", pflag.ContinueOnError)
	f.String("config", "", "")
	f.String("name-of-it", "", "")
	f.StringSlice("some-list", nil, "")
	f.Bool("switch-it", false, "")
	f.Duration("wait-for", 0, "")
	f.Uint32("number-of", 0, "")
	return f
}

func TestLoadNamesFieldOfFile(t *testing.T) {
	for file, want := range map[string]string{
		"nam-of-it: x":                 `unknown key "nam-of-it": did you mean name-of-it?`,
		"something: x":                 `unknown key "something"; the keys are name-of-it, number-of, some-list, switch-it, wait-for`,
		"config: x":                    `unknown key "config"`,
		"name-of-it: {a: b}":           "name-of-it: want a value, not a mapping",
		"name-of-it: [a]":              "name-of-it: want one value, not a list",
		"switch-it: perhaps":           `switch-it: "perhaps": want true or false`,
		"wait-for: soon":               `wait-for: "soon": want a duration with its unit, such as 30s or 5m`,
		"wait-for: 5":                  `wait-for: "5": want a duration with its unit`,
		"number-of: -1":                `number-of: "-1": want a number from 0 to 4294967295`,
		"number-of: 1\nsome-list: [a]": "",
		"some-list: a\nwait-for: 5s":   "",
		"wait-for: 0":                  "",
	} {
		path := filepath.Join(t.TempDir(), "daemon.yaml")
		if err := os.WriteFile(path, []byte(file), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Load[daemon](daemonFlags(), []string{"SLUICE_CONFIG=" + path})
		if want != "" {
			want = "settings in " + path + ": " + want
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", file, err, want)
		}
	}
}

func TestLoadNamesVariableOfEnvironment(t *testing.T) {
	for _, tc := range []struct{ variable, want string }{
		{"SLUICE_SWITCH_IT=perhaps", `SLUICE_SWITCH_IT: "perhaps": want true or false`},
		{"SLUICE_WAIT_FOR=soon", `SLUICE_WAIT_FOR: "soon": want a duration`},
		{"SLUICE_NUMBER_OF=1", ""},
		{"SLUICE_SWITCH_IT=", ""},
		{"SLUICE_SOME_LIST=a,b", ""},
	} {
		_, err := Load[daemon](daemonFlags(), []string{tc.variable})
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v, want %q", tc.variable, err, tc.want)
		}
	}
}

func TestExitDistinguishesUsageErrors(t *testing.T) {
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{nil, 0, ""},
		{[]string{"run"}, 1, "d: one; two\n"},
		{[]string{"--nam-of-it", "x"}, 2, "d: unknown flag: --nam-of-it: did you mean --name-of-it?\n"},
		{[]string{"--frobnicate"}, 2, "d: unknown flag: --frobnicate: see d --help\n"},
		{[]string{"--switch-it=x"}, 2, `d: invalid argument "x" for "--switch-it" flag`},
		{[]string{"rnu"}, 2, "d: unknown command \"rnu\" for \"d\": did you mean run?\n"},
		{[]string{"rnu", "--frobnicate", "x"}, 2, "d: unknown command \"rnu\" for \"d\": did you mean run?\n"},
		{[]string{"frobnicate"}, 2, "d: unknown command \"frobnicate\" for \"d\"\n"},
		{[]string{"run", "x"}, 2, "d: run takes no arguments, and got \"x\"\n"},
	} {
		cmd := &cobra.Command{Use: "d", SilenceErrors: true, SilenceUsage: true}
		cmd.SetOut(io.Discard)
		cmd.SetFlagErrorFunc(FlagError)
		cmd.Flags().AddFlagSet(daemonFlags())
		cmd.AddCommand(&cobra.Command{Use: "run", Args: NoArgs, RunE: func(*cobra.Command, []string) error {
			return errors.Join(errors.New("one"), errors.New("two"))
		}})
		cmd.SetArgs(tc.args)
		var out bytes.Buffer
		if code := Exit(cmd.Execute(), "d", &out); code != tc.code || !strings.HasPrefix(out.String(), tc.want) {
			t.Errorf("%q: exit code %d and %q, want %d and %q", tc.args, code, out.String(), tc.code, tc.want)
		}
	}
}

func TestBracketedAddsBracketsOfIPv6(t *testing.T) {
	for in, want := range map[string]string{
		"https://fd00::1:2379": "https://[fd00::1]:2379", "fd00::1:2379": "[fd00::1]:2379", "https://[fd00::1]:2379": "https://[fd00::1]:2379",
		"https://10.0.0.1:2379": "https://10.0.0.1:2379", "fd00::1": "fd00::1", "a:b:1": "a:b:1", "unix:///run/etcd.sock": "unix:///run/etcd.sock", "": "",
	} {
		if got := Bracketed(in); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}

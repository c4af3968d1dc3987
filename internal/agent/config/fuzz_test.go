package config

import (
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/internal/lib/settings"
)

// FuzzSettings: a file with settings is refused with its name, or gives the same
// settings each time, none of which the flags do not have.
func FuzzSettings(f *testing.F) {
	for _, s := range []string{
		"node: n1\n", "etcd-endpoints: [a:1, b:2]\nvpp-timeout: 7s\n", "nodee: x\n", "node: [\n", "node: {a: b}\n", "vpp-timeout: soon\n",
		"allow-node-traffic: no\n", "config: x\n", "node: &a n1\nlog-level: *a\n", "1: 2\n", "~\n", "- node\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		path := settingsFile(t, string(text))
		c, err := Load(flagsOf(t, "--config", path), nil)
		if err != nil {
			if !strings.Contains(err.Error(), "settings") {
				t.Errorf("%q: the error is %v", text, err)
			}
			return
		}
		again, err := Load(flagsOf(t, "--config", path), nil)
		if err != nil || !reflect.DeepEqual(c, again) {
			t.Errorf("%q is %+v, and then %+v, %v", text, c, again, err)
		}
		_, _ = settings.Level(c.Log.Level)
		_, _ = c.Node.FurtherAddresses()
	})
}

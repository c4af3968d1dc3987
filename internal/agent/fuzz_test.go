package agent

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/internal/settings"
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
		c, err := loadConfig(flagsOf(t, "--config", path), nil)
		if err != nil {
			if !strings.Contains(err.Error(), "settings") {
				t.Errorf("%q: the error is %v", text, err)
			}
			return
		}
		again, err := loadConfig(flagsOf(t, "--config", path), nil)
		if err != nil || !reflect.DeepEqual(c, again) {
			t.Errorf("%q is %+v, and then %+v, %v", text, c, again, err)
		}
		_, _ = settings.Level(c.LogLevel)
		_, _ = c.nodeAddresses()
	})
}

// FuzzDebugAPI sends bodies to a running agent: a question is answered with JSON, or
// refused with one line that is no longer than it has to be.
func FuzzDebugAPI(f *testing.F) {
	for _, s := range []string{
		flowFrom("demo/client", "demo/server", "http"), flowFrom("198.51.100.7", "demo/app=server", "80"), flowFrom("[fd00::1]", "demo/*", "1"),
		`{"src":"demo/client","dst":"10.0.0.2","protocol":"icmp"}`, `{"src":"","dst":"","protocol":"any"}`, `{"src":"x"} {}`, `{"src":1}`, `[]`,
		`{"src":"a in (b","dst":"demo/server","port":"99999","protocol":"6"}`,
	} {
		f.Add([]byte(s))
	}
	a := running(f, nil)
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, path := range []string{"/v1/explain", "/v1/inject"} {
			switch code, text := a.ask("POST", path, string(body)); code {
			case 200:
				if !json.Valid([]byte(text)) {
					t.Errorf("%s of %q is answered with %q", path, body, text)
				}
			case 400, 422:
				if text == "" || len(text) > 2000+8*len(body) {
					t.Errorf("%s of %q is refused with %d bytes", path, body, len(text))
				}
			default:
				t.Errorf("%s of %q: status %d: %s", path, body, code, text)
			}
		}
	})
}

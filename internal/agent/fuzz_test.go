package agent

import (
	"encoding/json"
	"testing"
)

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

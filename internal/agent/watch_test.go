package agent

import (
	"strings"
	"testing"
)

func TestVerdictsAreToldOfWhereTheKernelEnforcesOnly(t *testing.T) {
	a := running(t, nil)
	if code, text := a.ask("POST", "/v1/verdicts", "{}"); code != 422 || !strings.Contains(text, "--renderers xdp") {
		t.Errorf("status %d: %s", code, text)
	}
	for question, want := range map[string]string{
		`{"action":1}`:      "the question is not understood",
		`{"action":"drop"}`: `action "drop": want deny, permit, all or audit`,
	} {
		if code, text := a.ask("POST", "/v1/verdicts", question); code != 400 || !strings.Contains(text, want) {
			t.Errorf("%s: status %d and %q, want 400 and %q", question, code, text, want)
		}
	}
}

package agent

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/agent/config"
	"github.com/sluice-net/sluice/internal/view"
)

func TestVerdictsOfTheEmbeddedDataplane(t *testing.T) {
	a := running(t, func(c *config.Config) { c.Log.Keep, c.Log.Places = "all", 100 })
	flow := func(src string, port uint16) api.Flow {
		return api.Flow{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr("10.2.0.1"), Protocol: api.TCP, SrcPort: 4000, DstPort: port}
	}
	traffic(t, a, flow("10.2.0.3", 80)) // a stranger
	traffic(t, a, flow("10.2.0.3", 80))
	get[[]view.Injection](t, a, "POST", "/v1/inject", `{"src":"demo/friend","dst":"demo/server","port":"http","protocol":"TCP"}`)
	lines := func(q string) (out []string) {
		a.eventually(t, "a verdict", func() bool {
			code, text := a.ask("POST", "/v1/verdicts", q)
			if code != 200 {
				t.Fatalf("%s: status %d: %s", q, code, text)
			}
			out = nil
			for line := range strings.Lines(text) {
				var v view.PacketVerdict
				if err := json.Unmarshal([]byte(line), &v); err != nil {
					t.Fatal(err)
				}
				out = append(out, strings.Join([]string{v.Renderer, v.Action.String(), v.Direction.String(), v.Pod.Name, v.Src.Name + ">" + v.Dst.Name, v.Reason, api.OriginTexts(v.Origins)}, " "))
			}
			return len(out) > 0
		})
		return out
	}
	denied := "acl deny ingress server demo/stranger>demo/server policy ingress isolation by demo/server"
	for q, want := range map[string][]string{
		`{"past":true,"from":{"pod":"stranger"}}`:                         {denied, denied},
		`{"past":true,"action":"permit","from":{"labels":"role=client"}}`: {"acl permit egress friend demo/friend>demo/server  ", "acl permit ingress server demo/friend>demo/server  ingress rule 0 of demo/server"},
	} {
		if got := lines(q); strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%s:\n%s\nwant\n%s", q, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	sum := get[view.Traffic](t, a, "POST", "/v1/traffic", `{}`)
	if len(sum.Drops) != 1 || sum.Drops[0].Packets != 2 || sum.Drops[0].Src != "demo/stranger" || len(sum.Pods) == 0 || sum.Pods[0].Denied != 2 {
		t.Errorf("the traffic is %+v", sum)
	}
	decided := get[[]view.Decided](t, a, "GET", "/v1/decisions?namespace=demo", "")
	if len(decided) != 1 || decided[0].Packets != 2 || decided[0].Origin.Policy.Name != "server" || decided[0].Action != api.Deny {
		t.Errorf("the rules decided %+v", decided)
	}
	if rest := get[[]view.Decided](t, a, "GET", "/v1/decisions?namespace=other", ""); len(rest) != 0 {
		t.Errorf("rules of another namespace decided %+v", rest)
	}
	for question, want := range map[string]string{
		`{"action":1}`:                 `invalid request`,
		`{"action":"drop"}`:            `action "drop": want deny, permit, all or audit`,
		`{"from":{"labels":"a in"}}`:   `from-label "a in": `,
		`{"from":{"peer":"10.0.0/8"}}`: `invalid request`,
	} {
		for _, path := range []string{"/v1/verdicts", "/v1/traffic"} {
			if code, text := a.ask("POST", path, question); code/100 != 4 || !strings.HasPrefix(text, want) || strings.Count(text, "\n") != 1 {
				t.Errorf("%s %s: status %d and %q, want %q", path, question, code, text, want)
			}
		}
	}
}

func TestVerdictsThatAreNotKeptAreAnError(t *testing.T) {
	a := running(t, nil)
	for _, path := range []string{"/v1/verdicts", "/v1/traffic"} {
		if code, text := a.ask("POST", path, `{"past":true}`); code != 422 || !strings.Contains(text, "--verdict-history none") {
			t.Errorf("%s: status %d: %s", path, code, text)
		}
	}
}

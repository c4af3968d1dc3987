package expr

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
)

func TestParseEndpointReadsOneKind(t *testing.T) {
	type kind struct {
		Addr, Namespace, Name, Selector string
	}
	for text, want := range map[string]kind{
		"shop/web-0":                   {Namespace: "shop", Name: "web-0"},
		" shop/web-0 ":                 {Namespace: "shop", Name: "web-0"},
		"*/web-0":                      {Namespace: "*", Name: "web-0"},
		"shop/app=web":                 {Namespace: "shop", Selector: "app=web"},
		"shop/app in (b,a)":            {Namespace: "shop", Selector: "app in (a,b)"},
		"shop/*":                       {Namespace: "shop"},
		"*/*":                          {Namespace: "*"},
		"*":                            {Namespace: "*"},
		"app":                          {Namespace: "*", Selector: "app"},
		"app.kubernetes.io/name=web":   {Namespace: "*", Selector: "app.kubernetes.io/name=web"},
		"fd00::1":                      {Addr: "fd00::1"},
		"::ffff:10.0.0.1":              {Addr: "10.0.0.1"},
		"shop/app.kubernetes.io/x=web": {Namespace: "shop", Selector: "app.kubernetes.io/x=web"},
	} {
		e, err := ParseEndpoint(text)
		got := kind{Namespace: e.Namespace, Name: e.Name}
		if e.Addr.IsValid() {
			got.Addr = e.Addr.String()
		}
		if e.Selector != nil {
			got.Selector = e.Selector.String()
		}
		if diff := cmp.Diff(want, got); diff != "" || err != nil || e.Selects() != (e.Name == "" && got.Addr == "" || e.Namespace == "*") {
			t.Errorf("%q: %v, selects %t, -want +got:\n%s", text, err, e.Selects(), diff)
		}
	}
}

func TestParseEndpointErrorsNameForms(t *testing.T) {
	for text, want := range map[string]string{
		"":                 `"" is neither an address, nor namespace/pod, nor a selector such as app=web`,
		"10.0.0.0/8":       `"10.0.0.0/8" is a prefix: want one address of it, such as 10.0.0.0`,
		"fe80::1%eth0":     `"fe80::1%eth0" is an address with a zone`,
		"shop/":            `"shop/" has no pod: want for example shop/web-0, shop/app=web or shop/*`,
		"shop/app in (web": `"shop/app in (web" is not a pod, and not a label selector: unable to parse requirement: found '', expected: ',' or ')'`,
	} {
		if _, err := ParseEndpoint(text); err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestParsePort(t *testing.T) {
	for text, want := range map[string]Port{
		"8080":     {Number: 8080, Protocol: api.TCP},
		"8080/TCP": {Number: 8080, Protocol: api.TCP},
		"53/udp":   {Number: 53, Protocol: api.UDP},
		"http":     {Name: "http", Protocol: api.TCP},
		"pg/sctp":  {Name: "pg", Protocol: api.SCTP},
		"ICMP":     {Protocol: api.ICMP},
		"icmp":     {Protocol: api.ICMP},
	} {
		if got, err := ParsePort(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v, want %+v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":          `"" is not a port: ` + WantPort,
		"0":         `"0" is not a port: ` + WantPort,
		"65536":     `"65536" is not a port: ` + WantPort,
		"a_b/tcp":   `"a_b/tcp" is not a port: ` + WantPort,
		"80/icmp":   `"80/icmp": protocol is none of TCP, UDP, SCTP`,
		"80/xyz":    `"80/xyz": protocol is none of TCP, UDP, SCTP`,
		"http/tcp/": `"http/tcp/": protocol is none of TCP, UDP, SCTP`,
	} {
		if got, err := ParsePort(text); err == nil || err.Error() != want {
			t.Errorf("%q: %+v, %v, want %s", text, got, err, want)
		}
	}
}

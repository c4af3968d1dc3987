package expr

import (
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/view"
)

func TestParseQuestionReadsDestinations(t *testing.T) {
	for text, want := range map[string]view.Question{
		"shop/web-0:8080":                    {Dst: "shop/web-0", Port: "8080", Protocol: api.TCP},
		"shop/web-0:8080/tcp":                {Dst: "shop/web-0", Port: "8080", Protocol: api.TCP},
		"shop/web-0:http/UDP":                {Dst: "shop/web-0", Port: "http", Protocol: api.UDP},
		"shop/web-0:9/sctp":                  {Dst: "shop/web-0", Port: "9", Protocol: api.SCTP},
		"shop/web-0/icmp":                    {Dst: "shop/web-0", Protocol: api.ICMP},
		"shop/web-0/47":                      {Dst: "shop/web-0", Protocol: 47},
		"shop/tcp:80":                        {Dst: "shop/tcp", Port: "80", Protocol: api.TCP},
		"shop/udp-relay:80":                  {Dst: "shop/udp-relay", Port: "80", Protocol: api.TCP},
		"shop/app=web:http":                  {Dst: "shop/app=web", Port: "http", Protocol: api.TCP},
		"app=web:http/tcp":                   {Dst: "app=web", Port: "http", Protocol: api.TCP},
		"app=web/icmp":                       {Dst: "app=web", Protocol: api.ICMP},
		"app in (web,cart):80/udp":           {Dst: "app in (web,cart)", Port: "80", Protocol: api.UDP},
		"app in (web,cart)/icmp":             {Dst: "app in (web,cart)", Protocol: api.ICMP},
		"app.kubernetes.io/name=web:80":      {Dst: "app.kubernetes.io/name=web", Port: "80", Protocol: api.TCP},
		"shop/app.kubernetes.io/name=web:80": {Dst: "shop/app.kubernetes.io/name=web", Port: "80", Protocol: api.TCP},
		"10.0.0.1:53/udp":                    {Dst: "10.0.0.1", Port: "53", Protocol: api.UDP},
		"10.0.0.1/icmp":                      {Dst: "10.0.0.1", Protocol: api.ICMP},
		"[fd00::1]:53/udp":                   {Dst: "fd00::1", Port: "53", Protocol: api.UDP},
		"[fd00::1]/icmp":                     {Dst: "fd00::1", Protocol: api.ICMP},
		"fd00::1/icmpv6":                     {Dst: "fd00::1", Protocol: api.ICMPv6},
	} {
		got, err := ParseQuestion("shop/cart-0", text)
		want.Src = "shop/cart-0"
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("%s: %v (-want +got):\n%s", text, err, d)
		}
	}
	if q, err := ParseQuestion("[fd00::2]", "[fd00::1]:53"); err != nil || q.Src != "fd00::2" {
		t.Errorf("a source in brackets is %q, %v", q.Src, err)
	}
}

func TestParseQuestionErrorsNameForms(t *testing.T) {
	for text, want := range map[string]string{
		"":                      "the destination is empty",
		":80":                   "the destination is empty",
		"[]:80":                 "the destination is empty",
		"shop/web-0":            `"shop/web-0" has no port: want for example shop/web-0:8080/tcp, or shop/web-0/icmp`,
		"shop/web-0:":           "has no port",
		"shop/web-0:/udp":       "want for example shop/web-0:8080/udp",
		"fd00::1":               "want for example [fd00::1]:8080/tcp",
		"fd00::1:8080/udp":      "want for example [fd00::1:8080]:8080/udp, or fd00::1:8080/icmp; where 8080 is the port, [fd00::1]:8080/udp",
		"[fd00::1]":             "want for example [fd00::1]:8080/tcp",
		"app=web":               "want for example app=web:8080/tcp",
		"shop/web-0:80/quic":    `"quic" is not a protocol`,
		"shop/web-0:80/any":     "a packet has one protocol",
		"shop/web-0:80/icmp":    "has a port, but icmp has none: want shop/web-0/icmp",
		"shop/web-0:80/tcp/udp": `"80/tcp" is neither the number nor the name of a port`,
	} {
		q, err := ParseQuestion("shop/cart-0", text)
		if err == nil {
			t.Errorf("%q is read as %+v, want an error", text, q)
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%q: the error is %q, want %q in it", text, err, want)
		}
	}
	if _, err := ParseQuestion("", "shop/web-0:80"); err == nil || !strings.Contains(err.Error(), "the source is empty") {
		t.Errorf("without a source the error is %v", err)
	}
}

// FuzzQuestion: whatever is read can be written so that it is read as the same again,
// and what is read is complete.
func FuzzQuestion(f *testing.F) {
	for _, s := range []string{"shop/web-0:8080/tcp", "[fd00::1]:53/udp", "fd00::1/icmp", "app in (a, b):http", "a/b/c:d/e", "::", "[", "]:1", "::1:/6", "a:b:c", "x//17"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, dst string) {
		q, err := ParseQuestion("src", dst)
		if err != nil {
			return
		}
		if q.Dst == "" || q.Protocol == api.AnyProtocol || q.Protocol.HasPorts() != (q.Port != "") {
			t.Fatalf("%q is read as %+v, which is no question", dst, q)
		}
		if _, err := netip.ParseAddr(q.Dst); err != nil && strings.ContainsAny(q.Dst, ":[]") {
			return // no pod, selector or address: the agent refuses it
		}
		text := bracketed(q.Dst)
		if q.Port != "" {
			text += ":" + q.Port
		}
		text += "/" + strconv.Itoa(int(q.Protocol))
		if again, err := ParseQuestion("src", text); err != nil || again != q {
			if !strings.ContainsAny(q.Dst, "/=(") && q.Port == "" {
				return // a bare word and a protocol is a namespace and a pod
			}
			t.Errorf("%q is read as %+v, written as %q, and read as %+v, %v", dst, q, text, again, err)
		}
	})
}

func TestParseQuestionReadsServices(t *testing.T) {
	for dst, want := range map[string]view.Question{
		"svc/shop/web:80":       {Src: "x", Dst: "svc/shop/web", Port: "80", Protocol: api.AnyProtocol},
		"svc/shop/web:http":     {Src: "x", Dst: "svc/shop/web", Port: "http", Protocol: api.AnyProtocol},
		"svc/shop/web:53/udp":   {Src: "x", Dst: "svc/shop/web", Port: "53", Protocol: api.UDP},
		"svc/shop/udp:53":       {Src: "x", Dst: "svc/shop/udp", Port: "53", Protocol: api.AnyProtocol},
		"svc/shop/web:80/tcp":   {Src: "x", Dst: "svc/shop/web", Port: "80", Protocol: api.TCP},
		"svc/web-0:80":          {Src: "x", Dst: "svc/web-0", Port: "80", Protocol: api.TCP}, // a pod of the namespace svc
		"svc/team/name=web:80":  {Src: "x", Dst: "svc/team/name=web", Port: "80", Protocol: api.TCP},
		"10.96.0.1:80":          {Src: "x", Dst: "10.96.0.1", Port: "80", Protocol: api.TCP},
		"svc/shop/web/icmp":     {Src: "x", Dst: "svc/shop/web", Protocol: api.ICMP},
		"svc/shop/47:80":        {Src: "x", Dst: "svc/shop/47", Port: "80", Protocol: api.AnyProtocol},
		"svc/shop/web:http/udp": {Src: "x", Dst: "svc/shop/web", Port: "http", Protocol: api.UDP},
	} {
		if got, err := ParseQuestion("x", dst); err != nil || got != want {
			t.Errorf("%s: %+v, %v; want %+v", dst, got, err, want)
		}
	}
	for _, dst := range []string{"svc/shop/web", "svc/shop/web:", "svc/shop/tcp"} {
		if got, err := ParseQuestion("x", dst); err == nil {
			t.Errorf("%s: %+v", dst, got)
		}
	}
}

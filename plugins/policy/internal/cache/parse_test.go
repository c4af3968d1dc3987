package cache

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

func TestParserReadsCIDRsLeniently(t *testing.T) {
	for in, want := range map[string]string{
		"10.0.0.0/8": "10.0.0.0/8", "10.1.2.3/8": "10.0.0.0/8", "010.001.000.000/16": "10.1.0.0/16",
		"0.0.0.0/0": "0.0.0.0/0", "000.0.0.0/0": "0.0.0.0/0", "::/0": "::/0", "fd00::1/64": "fd00::/64", "::ffff:10.1.2.3/104": "10.0.0.0/8",
		"::ffff:010.1.2.3/128": "10.1.2.3/32", "1.2.3.4/032": "1.2.3.4/32",
	} {
		if got, err := parseCIDR(in); err != nil || got.String() != want {
			t.Errorf("%s: got %v %v, want %s", in, got, err, want)
		}
	}
	for _, in := range []string{"", "10.0.0.0", "10.0.0.0/", "/8", "10.0.0.0/33", "10.0.0/8", "10.0.0.0.0/8", "fe80::1%eth0/64", "::/129", "10.0.0.0/-1", "10.0.0.0/+8", "10..0.0/8", "a/8", "0x10.0.0.0/8"} {
		if got, err := parseCIDR(in); err == nil {
			t.Errorf("%q: got %v", in, got)
		}
	}
}

func FuzzCIDR(f *testing.F) {
	for _, s := range []string{"10.0.0.0/8", "010.0.0.1/9", "::ffff:1.2.3.4/100", "fd00::/8"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := parseCIDR(s)
		if err != nil {
			return
		}
		if !p.IsValid() || p != p.Masked() {
			t.Errorf("%q: %v is not masked", s, p)
		}
		if strict, err := netip.ParsePrefix(s); err == nil && !strict.Addr().Is4In6() && strict.Masked() != p {
			t.Errorf("%q: got %v, want %v", s, p, strict.Masked())
		}
		if again, err := parseCIDR(p.String()); err != nil || again != p {
			t.Errorf("%q: %v becomes %v %v", s, p, again, err)
		}
	})
}

func TestParserChecksExceptionsOfBlock(t *testing.T) {
	b, _, err := parseBlock(&model.NetworkPolicy_IPBlock{Cidr: "10.0.0.0/8", Except: []string{"10.2.0.0/16", "10.1.0.1/16", "10.2.0.0/16"}})
	if err != nil || !slices.Equal(b.Except, []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("10.2.0.0/16")}) {
		t.Errorf("got %v %v", b, err)
	}
	for _, bad := range []string{"10.0.0.0/8", "0.0.0.0/0", "11.0.0.0/16", "::/0", "fd00::/64", "x"} {
		if _, field, err := parseBlock(&model.NetworkPolicy_IPBlock{Cidr: "10.0.0.0/8", Except: []string{bad}}); err == nil || field != "except[0]" {
			t.Errorf("%s: %s %v", bad, field, err)
		}
	}
}

func TestParserOfPorts(t *testing.T) {
	number := func(n, end uint32) *model.NetworkPolicy_Port {
		return &model.NetworkPolicy_Port{Port: &model.NetworkPolicy_Port_Number{Number: n}, EndPort: end}
	}
	name := func(n string, end uint32) *model.NetworkPolicy_Port {
		return &model.NetworkPolicy_Port{Protocol: model.Protocol_PROTOCOL_UDP, Port: &model.NetworkPolicy_Port_Name{Name: n}, EndPort: end}
	}
	for _, tt := range []struct {
		in   *model.NetworkPolicy_Port
		want intent.Port
	}{
		{&model.NetworkPolicy_Port{}, intent.Port{Protocol: api.TCP}},
		{number(80, 0), intent.Port{Protocol: api.TCP, Range: api.Port(80)}},
		{number(80, 80), intent.Port{Protocol: api.TCP, Range: api.Port(80)}},
		{number(1, 65535), intent.Port{Protocol: api.TCP, Range: api.Ports(1, 65535)}},
		{name("web", 0), intent.Port{Protocol: api.UDP, Name: "web"}},
	} {
		if got, err := parsePort(tt.in); err != nil || got != tt.want {
			t.Errorf("%v: got %v %v", tt.in, got, err)
		}
	}
	for _, bad := range []*model.NetworkPolicy_Port{
		nil, {Invalid: true}, {EndPort: 5}, {Protocol: 9}, number(0, 0), number(65536, 0), number(80, 79), number(80, 65536), name("", 0), name("web", 9),
	} {
		if got, err := parsePort(bad); err == nil {
			t.Errorf("%v: got %v", bad, got)
		}
	}
}

// On any input the cache must not panic, and dropping parts must not make a rule match more.
func FuzzPolicy(f *testing.F) {
	seeds := []*model.NetworkPolicy{
		{IsolatesIngress: true, Ingress: []*model.NetworkPolicy_Rule{{Peers: []*model.NetworkPolicy_Peer{{}}, Ports: []*model.NetworkPolicy_Port{{Invalid: true}}}}},
		{IsolatesEgress: true, Egress: []*model.NetworkPolicy_Rule{{Peers: []*model.NetworkPolicy_Peer{{IpBlock: &model.NetworkPolicy_IPBlock{Cidr: "x"}}}}}},
	}
	for _, s := range seeds {
		b, err := proto.Marshal(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m := &model.NetworkPolicy{}
		if proto.Unmarshal(b, m) != nil {
			return
		}
		c := New()
		id := model.ID{Kind: model.KindNetworkPolicy, Namespace: "n", Name: "p"}
		ch := model.Changes{Deltas: []model.Delta{{ID: id, Value: m}}}
		c.Update(ch, &diary{})
		spec := c.PolicySpecs()[0]
		for i, r := range spec.Ingress {
			if r.AnyPeer != (len(m.Ingress[i].GetPeers()) == 0) || r.AnyPort != (len(m.Ingress[i].GetPorts()) == 0) {
				t.Errorf("rule %d became wider: %+v", i, r)
			}
		}
		d := &diary{}
		if c.Update(ch, d); len(d.lines) != 0 {
			t.Errorf("equal input is reported: %v", d.lines)
		}
		ch.Deltas[0].Value = nil
		c.Update(ch, d)
		if len(c.policies.selectors.byText) != 0 || len(c.namespaces.byName) != 0 {
			t.Errorf("left over: %v", c.policies.selectors.byText)
		}
	})
}

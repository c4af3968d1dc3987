package neutron

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/secgroup"
)

// TestRuleIsReadExactly: null is not zero, and what Sluice does not install is equal to no rule of
// ours.
func TestRuleIsReadExactly(t *testing.T) {
	for text, want := range map[string]secgroup.Rule{
		`{"direction":"ingress","ethertype":"IPv4","protocol":"tcp","port_range_min":80,"port_range_max":90,"remote_ip_prefix":"10.0.0.7/8"}`: {
			Protocol: api.TCP, First: 80, Last: 90, Remote: netip.MustParsePrefix("10.0.0.0/8"),
		},
		`{"direction":"egress","ethertype":"IPv6","protocol":"58","port_range_min":null,"remote_ip_prefix":"::/0"}`:       {Direction: api.Egress, IPv6: true, Protocol: api.ICMPv6},
		`{"direction":"ingress","ethertype":"IPv6","protocol":"ipv6-icmp"}`:                                               {IPv6: true, Protocol: api.ICMPv6},
		`{"direction":"ingress","ethertype":"IPv4","protocol":"icmp","port_range_min":0,"port_range_max":null}`:           {Protocol: api.ICMP, Foreign: " range 0 to none"},
		`{"direction":"ingress","ethertype":"IPv4","protocol":"0"}`:                                                       {Foreign: ` protocol "0"`},
		`{"direction":"ingress","ethertype":"IPv4","remote_group_id":"g"}`:                                                {Foreign: ` remote group "g"`},
		`{"direction":"ingress","ethertype":"IPv4","remote_address_group_id":"a"}`:                                        {AddressGroup: "a"},
		`{"direction":"ingress","ethertype":"IPv4","protocol":"tcp","port_range_min":-1,"port_range_max":70000}`:          {Protocol: api.TCP, Foreign: " range -1 to 70000"},
		`{"direction":"ingress","ethertype":"IPv4","remote_ip_prefix":"fd00::/8"}`:                                        {Foreign: ` remote "fd00::/8"`},
		`{"direction":"\u001b","ethertype":"IPv4"}`:                                                                       {Foreign: ` direction "\x1b"`},
		`{"direction":"ingress","ethertype":"IPv4","protocol":"` + strings.Repeat("x", 1<<16) + `"}`:                      {Foreign: ` protocol "xxxxxxxxxxxxxxxxxxxx"`},
		`{"direction":"ingress","ethertype":"IPv4","protocol":"tcp","port_range_min":1,"port_range_max":65535}`:           {Protocol: api.TCP, First: 1, Last: 65535},
		`{"direction":"ingress","ethertype":"IPv4","protocol":"47","port_range_min":null,"remote_ip_prefix":"0.0.0.0/0"}`: {Protocol: 47},
	} {
		var r rule
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			t.Fatal(err)
		}
		if got := r.rule(); got != want {
			t.Errorf("%.150s is read as %+v, want %+v", text, got, want)
		}
	}
}

// TestClientErrorsAreShort: an answer is not repeated, and a server that does not answer is left.
func TestClientErrorsAreShort(t *testing.T) {
	hang := make(chan struct{})
	answer := func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.Contains(r.URL.Path, "address-groups"):
			<-hang
		case r.Method == http.MethodPost:
			w.WriteHeader(http.StatusConflict)
			_, _ = w.Write([]byte(`{"NeutronError":{"type":"OverQuota","message":"Quota exceeded \u001b[2J` + strings.Repeat("x", 1<<20) + `"}}`))
		case r.Method == http.MethodPut:
			w.WriteHeader(http.StatusNotFound)
			_, _ = w.Write([]byte(`{"NeutronError":{"type":"SecurityGroupNotFound","message":""}}`))
		default:
			_, _ = w.Write([]byte(`[1, 2]`))
		}
	}
	s := httptest.NewServer(http.HandlerFunc(answer))
	defer s.Close()
	defer close(hang)
	failed := 0
	c := New(NoAuth(s.URL, http.DefaultTransport), Options{Timeout: 200 * time.Millisecond, Observe: func(_, _ string, _ time.Duration, err error) {
		if err != nil {
			failed++
		}
	}})
	apply := func(op secgroup.Op) error { _, err := c.Apply(t.Context(), op); return err }
	if err := apply(secgroup.Op{Kind: secgroup.CreateGroup, Name: "x"}); !errors.Is(err, secgroup.ErrQuota) || len(err.Error()) > 600 || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("a quota: %.700v", err)
	}
	if err := apply(secgroup.Op{Kind: secgroup.SetGroups, ID: "p", Groups: []string{"gone"}}); err == nil || errors.Is(err, secgroup.ErrGone) {
		t.Errorf("a group that is gone is taken for a port that is: %v", err)
	}
	if err := apply(secgroup.Op{Kind: secgroup.DeleteAddressGroup, ID: "a"}); err == nil {
		t.Error("a server that does not answer is waited for")
	}
	if _, err := c.Ports(t.Context()); err == nil {
		t.Error("a list that is none is read")
	}
	if failed < 3 {
		t.Errorf("%d failures were observed", failed)
	}
}

package vpp

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
)

// TestVPPStatisticsSegmentIsNotExhausted fills a statistics segment of 32 MB with counters of entries,
// which VPP keeps when the ACLs are gone: other ACLs of as many entries would end it. They are refused
// by name, also by a renderer that did not see the first ones, and smaller ones are not.
func TestVPPStatisticsSegmentIsNotExhausted(t *testing.T) {
	p := vpptest.NewNetwork(vpptest.LaunchLarge(t, ""))
	var pods []api.PodID
	for i := range 91 {
		pods = append(pods, api.PodID{Namespace: "lab", Name: fmt.Sprint("p", i)})
		p.Add(acl.InterfaceTag(pods[i]))
	}
	start := func() *acl.Renderer {
		r, err := acl.New(acl.Options{Socket: p.Socket(), Stats: acl.Stats{Socket: p.StatsSocket()}, Timeout: 10 * time.Minute, Audit: -1})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	stop := func(r *acl.Renderer) {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	r, throng := start(), api.NewSetID("throng")
	defer func() { stop(r) }()
	list := renderer.NewRuleList([]api.ContivRule{{Action: api.Permit, Src: api.SetNet(throng), Protocol: api.TCP, DstPort: api.Port(80)}, {}}, nil)
	fill := func(restricted, peers int) error {
		c := renderer.Changes{Resync: true}
		for i, id := range pods {
			cfg := renderer.PodConfig{IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)})}}
			if i < restricted {
				cfg.Egress = list
			}
			c.Render(id, cfg)
		}
		var members []netip.Prefix
		for i := range uint32(peers) {
			k := 172<<24 + 2*i
			members = append(members, netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(k >> 24), byte(k >> 16), byte(k >> 8), byte(k)}), 32))
		}
		c.UpdateSet(throng, members, nil)
		return r.Apply(t.Context(), c)
	}
	for _, step := range []struct {
		restricted, peers int
		refused, restart  bool
	}{
		{38, 22_600, false, false},
		{0, 0, false, false},
		{91, 9_400, true, false},
		{91, 9_400, true, true},
	} {
		if step.restart {
			stop(r)
			r = start()
		}
		err := fill(step.restricted, step.peers)
		isRefused := errors.Is(err, acl.ErrTooLarge) && strings.Contains(err.Error(), "statistics segment")
		if isRefused != step.refused || err != nil && !isRefused {
			t.Errorf("%d peers of %d pods: %v, refused: %t, want %t", step.peers, step.restricted, err, isRefused, step.refused)
		}
	}
	// The figures of VPP, which it makes every 10 s, may be older than the counters that a new renderer finds.
	vpptest.Eventually(t, "smaller ones to be accepted", func() bool {
		err := fill(91, 100)
		if err != nil && !errors.Is(err, acl.ErrTooLarge) {
			t.Fatal(err)
		}
		return err == nil
	})
}

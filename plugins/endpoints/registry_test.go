package endpoints_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/plugins/endpoints"
)

var (
	web, db = api.PodID{Namespace: "shop", Name: "web"}, api.PodID{Namespace: "shop", Name: "db"}
	link1   = endpoints.Link{Index: 1, Name: "veth1", MAC: "02:00:00:00:00:01"}
	link2   = endpoints.Link{Index: 2, Name: "veth2", MAC: "02:00:00:00:00:02"}
	address = netip.MustParseAddr("10.0.0.1")
)

// A claim of a CNI plugin for a container.
func claimed(pod api.PodID, container string, l endpoints.Link) endpoints.Claim {
	return endpoints.Claim{Source: endpoints.SourceRegistered, Owner: container + "/eth0", Pod: pod, Sandbox: container, Link: l, IPs: []netip.Addr{address}}
}

// enforced returns a registry in which web has the first interface, and its policy is in force.
func enforced(t *testing.T) *endpoints.Registry {
	t.Helper()
	r := endpoints.NewRegistry(nil)
	r.Resync([]endpoints.Link{link1, link2})
	if err := r.Claim(claimed(web, "c1", link1)); err != nil {
		t.Fatal(err)
	}
	commit(r, web)
	want(t, r, 1, endpoints.StateEnforced)
	want(t, r, 2, endpoints.StateUnknown)
	return r
}

// commit does what a renderer does with these pods.
func commit(r *endpoints.Registry, pods ...api.PodID) {
	known, ends := map[api.PodID]bool{}, map[uint32]api.PodID{}
	for _, pod := range pods {
		known[pod] = true
		for _, index := range r.Offer(pod, []netip.Addr{address}) {
			ends[index] = pod
		}
	}
	r.Acknowledge(known, ends)
}

func want(t *testing.T, r *endpoints.Registry, index uint32, state endpoints.State) {
	t.Helper()
	if e, _ := r.Endpoint(index); e.State != state {
		t.Errorf("interface %d is %+v, want %s", index, e, state)
	}
}

func TestRegistryBlocksAllClaimants(t *testing.T) {
	r := enforced(t)
	for _, err := range []error{r.Claim(claimed(db, "c2", link2)), r.Claim(claimed(db, "c3", link1))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	commit(r, web, db)
	want(t, r, 1, endpoints.StateConflicting)
	want(t, r, 2, endpoints.StateConflicting)
	if e, _ := r.Endpoint(1); !strings.Contains(e.Reason, "shop/db") || !strings.Contains(e.Reason, "shop/web") {
		t.Errorf("the reason is %q", e.Reason)
	}
}

func TestRegistryDistinguishesLivesOfPod(t *testing.T) {
	r := enforced(t)
	one, two := claimed(web, "c1", link1), claimed(web, "c2", link1)
	one.UID, two.UID = "1", "2"
	if err := errors.Join(r.Claim(one), r.Claim(two)); err != nil {
		t.Fatal(err)
	}
	want(t, r, 1, endpoints.StateConflicting)
	r.Withdraw(endpoints.SourceRegistered, one.Owner)
	commit(r, web)
	want(t, r, 1, endpoints.StateEnforced)
}

func TestRegistryKeepsOneSandboxPerPod(t *testing.T) {
	r := enforced(t)
	if err := r.Claim(claimed(web, "c2", link2)); err != nil {
		t.Fatal(err)
	}
	commit(r, web)
	want(t, r, 1, endpoints.StateOrphaned)
	want(t, r, 2, endpoints.StateEnforced)
}

// TestRegistryStaysEnforcedOnRepeatedReport: a runtime records a pod after ADD.
func TestRegistryStaysEnforcedOnRepeatedReport(t *testing.T) {
	r := enforced(t)
	record := claimed(web, "c1", link1)
	if err := r.Found(endpoints.SourceNamespace, link1, []endpoints.Claim{record}); err != nil {
		t.Fatal(err)
	}
	want(t, r, 1, endpoints.StateEnforced)
	record.UID = "1"
	again := claimed(web, "c1", link1)
	again.UID = "2"
	if err := errors.Join(r.Found(endpoints.SourceNamespace, link1, []endpoints.Claim{record}), r.Claim(again)); err != nil {
		t.Fatal(err)
	}
	want(t, r, 1, endpoints.StateConflicting)
}

func TestRegistryWaitsForCommitAfterClaim(t *testing.T) {
	r := enforced(t)
	r.Withdraw(endpoints.SourceRegistered, "c1/eth0")
	want(t, r, 1, endpoints.StateOrphaned)
	if err := r.Claim(claimed(web, "c2", link1)); err != nil {
		t.Fatal(err)
	}
	want(t, r, 1, endpoints.StatePending)
	// of an Apply that began earlier
	r.Acknowledge(map[api.PodID]bool{web: true}, map[uint32]api.PodID{1: web})
	want(t, r, 1, endpoints.StatePending)
	commit(r, web)
	want(t, r, 1, endpoints.StateEnforced)
}

func TestRegistryWaitsForAddressesOfThisLife(t *testing.T) {
	r := enforced(t)
	next := claimed(web, "c2", link2)
	next.IPs = []netip.Addr{netip.MustParseAddr("10.0.0.2")}
	if err := r.Claim(next); err != nil {
		t.Fatal(err)
	}
	commit(r, web) // with the previous address of the pod
	want(t, r, 2, endpoints.StatePending)
}

func TestRegistryBlocksOtherLifeOfPod(t *testing.T) {
	r := enforced(t)
	next := claimed(web, "c2", link2)
	next.UID = "2"
	r.Identify(map[api.PodID]string{web: "1"}, true)
	if err := r.Claim(next); err != nil {
		t.Fatal(err)
	}
	commit(r, web) // with the labels of the previous pod, and the same address
	want(t, r, 2, endpoints.StatePending)
	if got := r.Addresses(); len(got) != 0 {
		t.Errorf("policy is to know addresses %v of another life", got)
	}
	r.Identify(map[api.PodID]string{web: "2"}, false)
	want(t, r, 2, endpoints.StatePending)
	if got := r.Addresses()[web]; len(got) != 1 || got[0] != address {
		t.Errorf("the pod has addresses %v", got)
	}
	commit(r, web)
	want(t, r, 2, endpoints.StateEnforced)
	r.Identify(map[api.PodID]string{web: "3"}, false)
	want(t, r, 2, endpoints.StateOrphaned)
	r.Identify(map[api.PodID]string{web: "2"}, false)
	want(t, r, 2, endpoints.StatePending)
}

func TestRegistryDistinguishesReusedInterfaceNames(t *testing.T) {
	for name, change := range map[string]func(*endpoints.Registry){
		"gone":   func(r *endpoints.Registry) { r.Gone(1); r.Link(link1) },
		"missed": func(r *endpoints.Registry) { r.Resync([]endpoints.Link{{Index: 1, Name: "veth1", MAC: link2.MAC}}) },
	} {
		r := enforced(t)
		change(r)
		commit(r, web)
		if want(t, r, 1, endpoints.StateUnknown); t.Failed() {
			t.Fatal(name)
		}
	}
	r := enforced(t)
	r.Resync([]endpoints.Link{{Index: 1, Name: "renamed", MAC: link1.MAC}})
	want(t, r, 1, endpoints.StateEnforced)
	if err := r.Claim(claimed(db, "c2", link2)); !errors.Is(err, endpoints.ErrNoLink) {
		t.Errorf("a claim of what is gone: %v", err)
	}
}

package renderer

import (
	"testing"
	"time"

	"github.com/sluice-net/sluice/api"
)

// TestUnpluggedPodsEndForAMinute: afterwards, and before they had an interface, pods are pending.
func TestUnpluggedPodsEndForAMinute(t *testing.T) {
	var u Unplugged
	a, b := api.PodID{Namespace: "ns", Name: "a"}, api.PodID{Namespace: "ns", Name: "b"}
	there, now := map[api.PodID]bool{a: true, b: true}, time.Unix(1e9, 0)
	want := func(pod api.PodID, after time.Duration, ends bool) {
		t.Helper()
		if got := u.Ends(pod, now.Add(after)); got != ends {
			t.Errorf("%s ends after %s: %t, want %t", pod, after, got, ends)
		}
	}
	plug := func(pods ...api.PodID) {
		all := map[api.PodID]bool{}
		for _, pod := range pods {
			all[pod] = true
		}
		u.Plugged(all, func(pod api.PodID) bool { return there[pod] })
	}
	want(a, 0, false)
	plug(a)
	want(a, 0, true)
	want(b, 0, false)
	plug()
	want(a, time.Minute-1, true)
	want(a, time.Minute, false)
	plug(a) // it has another interface
	want(a, time.Hour, true)
	plug()
	delete(there, a)
	plug()
	want(a, time.Hour, false) // another pod with the same name
	plug(b)
	u.Forget()
	want(b, 0, false)
}

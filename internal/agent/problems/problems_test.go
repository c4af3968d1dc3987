package problems

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
)

func TestProblemsAreKeptOncePerField(t *testing.T) {
	var l Log
	cidr := api.Problem{Source: "f", Object: "NetworkPolicy a/b", Field: "spec.ingress[0].from[0].ipBlock.cidr", Reason: "x"}
	l.Add(cidr)
	newer := cidr
	newer.Reason = "y"
	l.Add(newer)
	if d := cmp.Diff([]api.Problem{newer}, l.All()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for p, want := range map[api.Problem]bool{
		{Object: "NetworkPolicy a/b", Field: "spec.ingress[0].from[0]"}: true,
		{Object: "NetworkPolicy a/b", Field: "spec.ingress[1].from[0]"}: false,
		{Object: "NetworkPolicy a/c", Field: "spec.ingress[0].from[0]"}: false,
	} {
		if l.Explains(p) != want {
			t.Errorf("that %+v is explained is %t, want %t", p, !want, want)
		}
	}
	for i := range 3 * maxProblems {
		l.Add(api.Problem{Source: fmt.Sprint(i)})
	}
	all := l.All()
	if len(all) != maxProblems || all[maxProblems-1].Source != fmt.Sprint(3*maxProblems-1) {
		t.Errorf("%d problems are kept, the newest is %+v", len(all), all[len(all)-1])
	}
	given := []api.Problem{cidr}
	l.Replace(given)
	given[0].Reason = "changed by the caller"
	if d := cmp.Diff([]api.Problem{cidr}, l.All()); d != "" {
		t.Errorf("replaced (-want +got):\n%s", d)
	}
}

package preview

import (
	"cmp"
	"context"
	"fmt"

	"github.com/sluice-net/sluice/internal/analysis/explain"
	"github.com/sluice-net/sluice/internal/lib/term"
)

// Options of a preview. The zero value compares flows alone.
type Options struct {
	// Renderers are the dataplanes to try the change in, of those that Renderers has; none: the
	// specification alone is asked.
	Renderers []string
	// ACLMemory and PolicyMemory are how many bytes rules may take in VPP and in the kernel; 0 is
	// no limit.
	ACLMemory, PolicyMemory uint64
	// AllNodes computes more nodes than 24.
	AllNodes bool
	// Most is how many pairs of groups are asked about; 0 means 2 000 000.
	Most int
}

const mostPairs = 2_000_000

// Compare returns the effects of a change on a cluster.
func Compare(ctx context.Context, before, after explain.Manifests, o Options) (Report, error) {
	c, results, err := compare(ctx, before, after, o)
	if err != nil {
		return Report{}, err
	}
	g := newGrouping(c)
	r := Report{Differences: g.rows(results), Pods: len(g.pods), Groups: len(c.classes)}
	for _, x := range results {
		r.Flows += x.asked
	}
	if n := waiting(before, after); n > 0 {
		r.Notes = append(r.Notes, fmt.Sprintf("left out: %s without an address", term.Count(n, "pod")))
	}
	if len(o.Renderers) > 0 {
		err = c.rehearse(ctx, results, o, &r)
	}
	return r, err
}

// compare finds the flows that open and close.
func compare(ctx context.Context, before, after explain.Manifests, o Options) (*comparison, []result, error) {
	v := newVocabulary()
	c := newComparison(newState(before, v), newState(after, v), v)
	c.reach = newReach(c, "")
	results, err := c.run(ctx, cmp.Or(o.Most, mostPairs))
	return c, results, err
}

// waiting counts the pods that policies would see if they had an address.
func waiting(states ...explain.Manifests) (n int) {
	seen := map[string]bool{}
	for _, s := range states {
		for _, p := range s.Pods {
			if id := explain.PodID(p).String(); explain.IsLive(p) && len(p.GetIps()) == 0 && !seen[id] {
				seen[id] = true
				n++
			}
		}
	}
	return n
}

package configurator

import (
	"crypto/sha256"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// finished is a generated list with its key, which takes as long as the list.
type finished struct {
	*generated
	key listKey
}

// finish computes the key of a list.
func finish(g *generated) *finished {
	if g == nil {
		return nil
	}
	origins := g.rules.OriginsDigest()
	if len(g.refused) > 0 {
		h := sha256.New()
		h.Write(origins[:])
		of := make([][]api.Origin, len(g.refused))
		for i, r := range g.refused {
			of[i] = r.origins
			h.Write(append([]byte(r.reason), 0))
		}
		refused := renderer.NewRuleList(make([]api.ContivRule, len(of)), of).OriginsDigest()
		h.Write(refused[:])
		copy(origins[:], h.Sum(nil))
	}
	return &finished{g, listKey{g.rules.Digest(), origins}}
}

package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/follow"
	"github.com/sluice-net/sluice/plugins/ksr/strict"
)

// Names is what the store has of the name of a node.
type Names struct {
	Named  bool     // an object names the node
	Others []string // nodes that objects name instead, sorted
}

// NameStore is where names of nodes are looked for.
type NameStore interface {
	follow.Store
	Revision(ctx context.Context, key string) (int64, error)
}

// NamesOf looks for a Node object, and for pods of the node where there is none.
func NamesOf(ctx context.Context, s NameStore, prefix, name string) (Names, error) {
	if revision, err := s.Revision(ctx, model.Key(prefix, model.ID{Kind: model.KindNode, Name: name})); err != nil || revision > 0 {
		return Names{Named: revision > 0}, err
	}
	others := map[string]bool{}
	for _, kind := range []model.Kind{model.KindNode, model.KindPod} {
		entries, _, err := s.List(ctx, model.KindRoot(prefix, kind))
		if err != nil {
			return Names{}, err
		}
		state := Decode(prefix, entries)
		for _, n := range state.Nodes {
			others[n.GetName()] = true
		}
		for _, p := range state.Pods {
			others[p.GetNodeName()] = true
		}
	}
	delete(others, "") // pods that are not scheduled yet
	return Names{others[name], slices.Sorted(maps.Keys(others))}, nil
}

// mostNames is how many nodes a remedy lists.
const mostNames = 5

// Remedy says which name was probably meant.
func (n Names) Remedy(name string) string {
	if likely, ok := strict.Nearest(name, n.Others); ok {
		return fmt.Sprintf("did you mean --node %s?", likely)
	}
	names := strings.Join(n.Others[:min(len(n.Others), mostNames)], ", ")
	if more := len(n.Others) - mostNames; more > 0 {
		names += fmt.Sprintf(" and %d more", more)
	}
	return "--node is one of " + names
}

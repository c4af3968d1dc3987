package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// OriginTexts describes rules of policies for users: each rule on its own, and isolation once per
// direction, for example "ingress rule 0 of shop/web; egress isolation by shop/a, shop/b".
func OriginTexts(origins []Origin) string {
	var texts []string
	isolated := map[string][]string{}
	for _, o := range origins {
		name := o.Policy.Short()
		switch {
		case o.Audit && o.Rule == IsolationRule:
			kind := fmt.Sprintf("would be denied: %s isolation by ", o.Direction)
			isolated[kind] = append(isolated[kind], name)
		case o.Audit:
			texts = append(texts, fmt.Sprintf("would be denied: %s rule %d of %s", o.Direction, o.Rule, name))
		case o.Rule == IsolationRule:
			kind := fmt.Sprintf("%s isolation by ", o.Direction)
			isolated[kind] = append(isolated[kind], name)
		case o.Rule == NodeRule:
			kind := fmt.Sprintf("own node, exempt from %s isolation by ", o.Direction)
			isolated[kind] = append(isolated[kind], name)
		default:
			texts = append(texts, fmt.Sprintf("%s rule %d of %s", o.Direction, o.Rule, name))
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(isolated)) {
		texts = append(texts, kind+strings.Join(isolated[kind], ", "))
	}
	return strings.Join(texts, "; ")
}

package cli

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/view"
)

func labelTexts(set map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(set)) {
		out = append(out, k+"="+set[k])
	}
	return strings.Join(out, ",")
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// side names a party, with its address if that adds information.
func side(p view.Party) string {
	if p.Pod == (api.PodID{}) {
		return p.Name
	}
	return p.Name + " (" + p.Address.String() + ")"
}

// lasting returns how long a state has lasted, if known.
func lasting(since, now time.Time) string {
	if since.IsZero() {
		return ""
	}
	return " for " + now.Sub(since).Round(time.Second).String()
}

// ago returns how long ago something happened.
func ago(at, now time.Time) string {
	if at.IsZero() {
		return "-"
	}
	return now.Sub(at).Round(time.Second).String() + " ago"
}

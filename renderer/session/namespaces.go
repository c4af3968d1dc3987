package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	govpp "go.fd.io/govpp/api"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// NamespaceID returns the name of the application namespace of a pod, unless Options say
// otherwise. A name that is too long for VPP is cut and made unique by a hash.
func NamespaceID(pod api.PodID) string {
	id := pod.String()
	if len(id) <= maxTag {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	hash := "~" + hex.EncodeToString(sum[:8])
	return id[:maxTag-len(hash)] + hash
}

var (
	colours = regexp.MustCompile("\x1b\\[[0-9;]*m")
	// A line of "show app ns": index, secret, interface, name, socket.
	namespaceLine = regexp.MustCompile(`^(\d+)\s+\d+\s+(?:DELETED \(\d+\)|\S+)\s+(\S+)`)
)

// parseNamespaces reads the indexes of application namespaces from what VPP prints.
func parseNamespaces(text string) map[string]uint32 {
	out := map[string]uint32{}
	for line := range strings.Lines(colours.ReplaceAllString(text, "")) {
		m := namespaceLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		if index, err := strconv.ParseUint(m[1], 10, 32); err == nil {
			out[m[2]] = uint32(index)
		}
	}
	return out
}

// namespaces returns the application namespaces by name; the API has no such request.
func (l *link) namespaces(ctx context.Context) (map[string]uint32, error) {
	text, err := l.CLI(ctx, "show app ns")
	if err != nil {
		return nil, fmt.Errorf("read application namespaces: %w", err)
	}
	return parseNamespaces(text), nil
}

// initTables has VPP make the rules of the routing tables of namespaces, by a rule that is gone at
// once: only then dumps tell which namespaces have one table. Else an address that goes from
// one pod to another could be in two sections at once.
func (l *link) initTables(ctx context.Context, namespaces []uint32) error {
	all, err := l.dump(ctx)
	if err != nil {
		return err
	}
	known := map[tableKey]bool{}
	for _, d := range all {
		if f, _ := l.found(d); !f.local {
			for _, n := range f.namespaces {
				known[tableKey{n, f.family}] = true
			}
		}
	}
	for _, namespace := range slices.Sorted(slices.Values(namespaces)) {
		for family, addr := range probeAddrs {
			if known[tableKey{namespace, family}] {
				continue
			}
			s := section{namespace: namespace, own: addr, family: family}
			for _, add := range [3]bool{false, true, false} {
				// A namespace may have no table of a family.
				if err := l.one(ctx, l.change(s, add, tops[family], api.Permit, tableTag)); err != nil && !isUnknown(err) {
					return err
				}
			}
		}
	}
	return nil
}

// ruleLine is a line of "show session rules".
var ruleLine = regexp.MustCompile(`^\[\d+\] rule: (\S+ \d+ \S+ \d+) action: -?\d+ tag: (\S+)`)

// parseTags reads tags from what VPP prints, by match.
func parseTags(text string) map[string]string {
	out := map[string]string{}
	for line := range strings.Lines(text) {
		if m := ruleLine.FindStringSubmatch(strings.TrimSpace(line)); m != nil {
			out[m[1]] = m[2]
		}
	}
	return out
}

// tagsOf returns the tags of the rules of a table by match. Dumps do not tell those of IPv6.
func (l *link) tagsOf(ctx context.Context, namespace string, transport api.Protocol, local bool) (map[string]string, error) {
	scope := "global"
	if local {
		scope = "local"
	}
	text, err := l.CLI(ctx, fmt.Sprintf("show session rules %s appns %s scope %s", strings.ToLower(transport.String()), namespace, scope))
	return parseTags(text), err
}

// isUnknown reports whether the vswitch has no such command.
func isUnknown(err error) bool {
	var retval govpp.VPPApiError
	return errors.Is(err, vpp.ErrNoCLI) || errors.As(err, &retval)
}

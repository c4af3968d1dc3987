package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Scope names the interfaces of a node that connect pods.
type Scope struct {
	Prefixes []string // of the names of interfaces that are not ports of a bridge
	Bridges  []string // bridges whose ports are meant
}

// ParseScope parses names of bridges, and prefixes of interface names, which end with a star.
func ParseScope(names []string) (s Scope, err error) {
	for _, name := range names {
		prefix, isPrefix := strings.CutSuffix(name, "*")
		switch {
		case name == "" || prefix == "" || len(name) > 15 || strings.ContainsAny(prefix, "*/ "):
			return Scope{}, fmt.Errorf("%q is neither the name of a bridge nor a prefix with a star behind it", name)
		case isPrefix:
			s.Prefixes = append(s.Prefixes, prefix)
		default:
			s.Bridges = append(s.Bridges, name)
		}
	}
	return s, nil
}

// Empty reports whether the scope names nothing.
func (s Scope) Empty() bool { return len(s.Prefixes) == 0 && len(s.Bridges) == 0 }

// includes reports whether a pair belongs to a pod: by its bridge if it is a port, else by its name.
func (s Scope) includes(d device, bridge string) bool {
	if d.master != 0 {
		return slices.Contains(s.Bridges, bridge)
	}
	return slices.ContainsFunc(s.Prefixes, func(p string) bool { return strings.HasPrefix(d.Name, p) })
}

func (s Scope) with(o Scope) Scope {
	return Scope{append(slices.Clone(s.Prefixes), o.Prefixes...), append(slices.Clone(s.Bridges), o.Bridges...)}
}

// plugin holds the relevant fields of a plugin in a CNI configuration.
type plugin struct {
	Type     string   `json:"type"`
	Bridge   string   `json:"bridge"`
	Delegate *plugin  `json:"delegate"`
	Plugins  []plugin `json:"plugins"` // of a list
}

// prefixes are the prefixes of the interface names that plugins create.
var prefixes = map[string]string{"ptp": "veth", "bridge": "veth", "flannel": "veth", "calico": "cali", "cilium-cni": "lxc"}

// scope returns the interfaces that a plugin creates.
func (p plugin) scope() (s Scope) {
	if prefix := prefixes[p.Type]; prefix != "" {
		s.Prefixes = append(s.Prefixes, prefix)
	}
	switch {
	case p.Bridge != "":
		s.Bridges = append(s.Bridges, p.Bridge)
	case p.Type == "bridge", p.Type == "flannel" && p.Delegate == nil:
		s.Bridges = append(s.Bridges, "cni0")
	}
	if p.Delegate != nil {
		if p.Delegate.Type == "" && p.Type == "flannel" {
			p.Delegate.Type = "bridge"
		}
		s = s.with(p.Delegate.scope())
	}
	for _, q := range p.Plugins {
		s = s.with(q.scope())
	}
	return s
}

// maxConf bounds the size of a CNI file in bytes.
const maxConf = 1 << 20

// scopeOf reads the CNI configurations in a folder. It returns what the readable ones name, even if
// others cannot be read.
func scopeOf(folder string) (s Scope, err error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return s, err
	}
	var errs []error
	for _, e := range entries {
		if !slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(e.Name())) {
			continue
		}
		b, err := readFile(filepath.Join(folder, e.Name()), maxConf)
		var p plugin
		if err == nil {
			err = json.Unmarshal(b, &p)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", e.Name(), err))
			continue
		}
		s = s.with(p.scope())
	}
	return s, errors.Join(errs...)
}

// readScope reads which interfaces connect pods. Names stay in the scope: a file may be incomplete
// while it is written. mu is held.
func (k *Keeper) readScope() {
	if k.cfg.CNIConf == "" || !k.cfg.BlockNew {
		return
	}
	s, err := scopeOf(k.cfg.CNIConf)
	if errors.Is(err, fs.ErrNotExist) && !k.cfg.Scope.Empty() {
		err = nil // the scope is configured
	}
	k.problems.record("CNI configurations in "+k.cfg.CNIConf, err)
	now := k.scope.with(s)
	for _, l := range []*[]string{&now.Prefixes, &now.Bridges} {
		slices.Sort(*l)
		*l = slices.Compact(*l)
	}
	if slices.Equal(now.Prefixes, k.scope.Prefixes) && slices.Equal(now.Bridges, k.scope.Bridges) {
		return
	}
	k.scope = now
	k.log.Info("interfaces of pods determined", "prefixes", now.Prefixes, "bridges", now.Bridges)
	for _, d := range k.devices {
		k.see(d)
	}
}

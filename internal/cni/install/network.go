package install

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Plugin is the name of the plugin, and of its program.
const Plugin = "sluice-cni"

// network is a configuration of CNI. Of what is not known here nothing is lost.
type network struct {
	members map[string]json.RawMessage // but the plugins
	plugins []json.RawMessage
	single  bool // it was one plugin, not a list of them
}

// parse reads a configuration: a list of plugins, or a single one.
func parse(b []byte) (*network, error) {
	n := &network{}
	if err := json.Unmarshal(b, &n.members); err != nil {
		return nil, fmt.Errorf("it is not a JSON object: %w", err)
	}
	var name string
	if json.Unmarshal(n.members["name"], &name) != nil || name == "" {
		return nil, errors.New("name is missing")
	}
	list, isList := n.members["plugins"]
	if !isList {
		n.single = true
		n.plugins = []json.RawMessage{bytes.TrimSpace(b)}
	} else if err := json.Unmarshal(list, &n.plugins); err != nil || len(n.plugins) == 0 {
		return nil, errors.New("plugins is not a list of plugins")
	}
	delete(n.members, "plugins")
	for i, p := range n.plugins {
		if typeOf(p) == "" {
			return nil, fmt.Errorf("plugin %d has no type", i+1)
		}
	}
	return n, nil
}

// typeOf returns the type of a plugin, empty where it has none.
func typeOf(plugin json.RawMessage) string {
	var members map[string]json.RawMessage
	var name string
	if json.Unmarshal(plugin, &members) != nil || json.Unmarshal(members["type"], &name) != nil {
		return ""
	}
	return name
}

func isOurs(plugin json.RawMessage) bool { return typeOf(plugin) == Plugin }

// hasPlugin reports whether the plugin is among them.
func (n *network) hasPlugin() bool { return slices.ContainsFunc(n.plugins, isOurs) }

// connects reports whether a network of pods is made: by more than loopback interfaces.
func (n *network) connects() bool {
	return slices.ContainsFunc(n.plugins, func(p json.RawMessage) bool { return typeOf(p) != "loopback" && !isOurs(p) })
}

// isMain reports whether the plugin makes the interfaces of this network, as the list says.
func (n *network) isMain() bool {
	var members map[string]json.RawMessage
	return isOurs(n.plugins[0]) && json.Unmarshal(n.plugins[0], &members) == nil && members["ipam"] != nil
}

// setPlugin has the plugin once, with these members, and behind others: at the place that it has there,
// or last. It reports whether that is a change.
func (n *network) setPlugin(entry json.RawMessage) bool {
	at := slices.IndexFunc(n.plugins, isOurs)
	if at > 0 && !n.single && equal(n.plugins[at], entry) && !slices.ContainsFunc(n.plugins[at+1:], isOurs) {
		return false
	}
	n.plugins = slices.DeleteFunc(n.plugins, isOurs)
	if at <= 0 || at > len(n.plugins) {
		at = len(n.plugins)
	}
	n.plugins = slices.Insert(n.plugins, at, entry)
	if n.single {
		n.members = keep(n.members, "cniVersion", "cniVersions", "name", "disableCheck", "disableGC")
		n.single = false
	}
	return true
}

// keep returns those of members that have these names.
func keep(members map[string]json.RawMessage, names ...string) map[string]json.RawMessage {
	out := map[string]json.RawMessage{}
	for _, name := range names {
		if v, ok := members[name]; ok {
			out[name] = v
		}
	}
	return out
}

// remove takes the plugin out.
func (n *network) remove() { n.plugins = slices.DeleteFunc(n.plugins, isOurs) }

// text returns the configuration as a list.
func (n *network) text() ([]byte, error) {
	list, err := json.Marshal(n.plugins)
	if err != nil {
		return nil, err
	}
	all := map[string]json.RawMessage{"plugins": list}
	maps.Copy(all, n.members)
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	err = e.Encode(all)
	return out.Bytes(), err
}

// equal reports whether two texts in JSON mean the same.
func equal(a, b []byte) bool {
	canonical := func(in []byte) string {
		var v any
		d := json.NewDecoder(bytes.NewReader(in))
		d.UseNumber()
		if d.Decode(&v) != nil {
			return ""
		}
		out, _ := json.Marshal(v) // it was read from JSON
		return string(out)
	}
	c := canonical(a)
	return c != "" && c == canonical(b)
}

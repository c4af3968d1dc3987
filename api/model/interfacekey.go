package model

import (
	"fmt"
	"strings"
)

// MaxInterfaceName is the maximum length of the name of a VPP interface in bytes.
const MaxInterfaceName = 63

// VswitchRoot returns the prefix of the keys about the vswitches of all nodes, with a final slash.
func VswitchRoot(prefix string) string { return prefix + "/vswitch/" }

// InterfaceRoot returns the prefix of the keys that bind interfaces of a node's vswitch to pods,
// with a final slash.
func InterfaceRoot(prefix, node string) string { return VswitchRoot(prefix) + node + "/interface/" }

// InterfaceKey returns the etcd key that binds an interface of a node's vswitch to a pod:
// <prefix>/vswitch/<node>/interface/<namespace>/<pod>/<interface>. The name of the interface may
// contain slashes. The value is ignored; it may be empty. The component that connects pods writes
// the key before it sets the interface up, and deletes the key after the interface.
func InterfaceKey(prefix, node, namespace, pod, name string) string {
	return InterfaceRoot(prefix, node) + namespace + "/" + pod + "/" + name
}

// AppNamespaceRoot returns the prefix of the keys that bind application namespaces of a node's
// vswitch to pods, with a final slash.
func AppNamespaceRoot(prefix, node string) string { return VswitchRoot(prefix) + node + "/appns/" }

// AppNamespaceKey returns the etcd key that binds an application namespace of a node's vswitch to a
// pod: <prefix>/vswitch/<node>/appns/<namespace>/<pod>/<id>. The id may contain slashes and has at
// most MaxInterfaceName bytes. The value is ignored; it may be empty. The component that creates
// the namespace writes the key afterwards, before applications attach to it.
func AppNamespaceKey(prefix, node, namespace, pod, id string) string {
	return AppNamespaceRoot(prefix, node) + namespace + "/" + pod + "/" + id
}

// ParsePodKey parses a key of InterfaceKey or AppNamespaceKey that is below root.
func ParsePodKey(root, key string) (namespace, pod, name string, err error) {
	rest, ok := strings.CutPrefix(key, root)
	parts := strings.SplitN(rest, "/", 3)
	if !ok || len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return "", "", "", fmt.Errorf("key %s: want %s<namespace>/<pod>/<name>", Quoted(key), root)
	}
	if err := checkLengths(ID{Kind: KindPod, Namespace: parts[0], Name: parts[1]}); err != nil {
		return "", "", "", fmt.Errorf("key %s: %w", Quoted(key), err)
	}
	if n := len(parts[2]); n > MaxInterfaceName {
		return "", "", "", fmt.Errorf("key %s: the name has %d bytes, the limit is %d", Quoted(key), n, MaxInterfaceName)
	}
	return parts[0], parts[1], parts[2], nil
}

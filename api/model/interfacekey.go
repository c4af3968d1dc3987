package model

import (
	"fmt"
	"strings"
)

// MaxInterfaceName is how many bytes the name of an interface of VPP can have.
const MaxInterfaceName = 63

// VswitchRoot returns the prefix of what is said of the vswitches of all nodes, with a
// final slash.
func VswitchRoot(prefix string) string { return prefix + "/vswitch/" }

// InterfaceRoot returns the prefix of all keys that name interfaces of the pods of a
// node, with a final slash.
func InterfaceRoot(prefix, node string) string { return VswitchRoot(prefix) + node + "/interface/" }

// InterfaceKey returns the etcd key that says that an interface of a node's vswitch is
// that of a pod: <prefix>/vswitch/<node>/interface/<namespace>/<pod>/<interface>. The
// name of the interface may have slashes. The value does not count; it may be empty.
// Whoever plugs pods in writes the key before the interface goes up, and deletes it
// after the interface.
func InterfaceKey(prefix, node, namespace, pod, name string) string {
	return InterfaceRoot(prefix, node) + namespace + "/" + pod + "/" + name
}

// AppNamespaceRoot returns the prefix of all keys that name application namespaces of the pods of
// a node, with a final slash.
func AppNamespaceRoot(prefix, node string) string { return VswitchRoot(prefix) + node + "/appns/" }

// AppNamespaceKey returns the etcd key that says that an application namespace of a node's
// vswitch is that of a pod: <prefix>/vswitch/<node>/appns/<namespace>/<pod>/<id>. The id may have
// slashes, and MaxInterfaceName bytes. The value does not count; it may be empty. Whoever makes the
// namespace writes the key once it is there, and before applications attach to it.
func AppNamespaceKey(prefix, node, namespace, pod, id string) string {
	return AppNamespaceRoot(prefix, node) + namespace + "/" + pod + "/" + id
}

// ParsePodKey reads a key of InterfaceKey or AppNamespaceKey, below the root of its kind.
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

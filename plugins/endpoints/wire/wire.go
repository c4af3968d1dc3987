// Package wire is the protocol between a CNI plugin and the agent of its node: HTTP with JSON over
// the agent's Unix socket, which only root may open. It imports only the standard library, so that
// a plugin stays small.
//
//	POST   /v1/endpoints           Registration -> Endpoint
//	DELETE /v1/endpoints           Attachment -> nothing
//	GET    /v1/endpoints           -> []Endpoint; ?namespace= and ?name= filter
//	POST   /v1/endpoints/gc        Valid -> nothing
//	GET    /v1/endpoints/vpp       ?interface=&namespace=&name=&until=enforced&timeout=5s -> Endpoint
//	GET    /v1/endpoints/enforced  ?containerId=&ifName=&timeout=5s -> Endpoint
//
// Both sides ignore unknown fields. Errors have a status of 400 or more, and one line with the
// reason; see Error.
package wire

import (
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// DefaultSocket is the path of the agent's socket.
const DefaultSocket = "/run/sluice/agent.sock"

// Paths of the API.
const (
	PathEndpoints = "/v1/endpoints"
	PathEnforced  = "/v1/endpoints/enforced"
	PathGC        = "/v1/endpoints/gc"
	PathVPP       = "/v1/endpoints/vpp"
)

// MaxTimeout is the maximum time to wait for enforcement.
const MaxTimeout = time.Minute

// Limits of the fields of a registration.
const (
	maxText      = 253 // bytes: a DNS subdomain, as for names in Kubernetes
	maxPath      = 4096
	maxAddresses = 64
)

// Attachment identifies an interface as CNI does: by a container, and the name of the interface in
// it.
type Attachment struct {
	ContainerID string `json:"containerId"`
	IfName      string `json:"ifName"`
}

// String returns "containerId/ifName".
func (a Attachment) String() string { return a.ContainerID + "/" + a.IfName }

// Check returns an error that names the first field that is missing or too long.
func (a Attachment) Check() error {
	if err := checkText("containerId", a.ContainerID, true); err != nil {
		return err
	}
	return checkText("ifName", a.IfName, true)
}

// Registration states that an interface of the node belongs to a pod. From then on the interface is
// blocked until the pod's policy is enforced there; the agent answers once it is blocked.
// Registration is idempotent. If a pod is registered with another container, its interfaces in the
// previous container are blocked.
type Registration struct {
	Attachment
	Namespace string `json:"namespace"`     // of the pod
	Name      string `json:"name"`          // of the pod
	UID       string `json:"uid,omitempty"` // of the pod, if known
	// name of CNI's network; empty: GC ignores the registration
	Network   string `json:"network,omitempty"`
	NetNS     string `json:"netns,omitempty"` // path of the network namespace on the node
	HostIf    string `json:"hostIf"`          // name of the node's end
	HostIndex uint32 `json:"hostIndex"`       // its index in the node's network namespace
	// its MAC address, such as 02:00:00:00:00:01
	HostMAC   string       `json:"hostMAC"`
	Addresses []netip.Addr `json:"addresses,omitempty"` // that the pod got
}

// Check returns an error that names the first field that is missing, too long, or out of range.
func (r Registration) Check() error {
	if err := r.Attachment.Check(); err != nil {
		return err
	}
	for _, f := range []struct{ name, value string }{{"namespace", r.Namespace}, {"name", r.Name}, {"hostIf", r.HostIf}, {"hostMAC", r.HostMAC}} {
		if err := checkText(f.name, f.value, true); err != nil {
			return err
		}
	}
	for _, f := range []struct{ name, value string }{{"uid", r.UID}, {"network", r.Network}} {
		if err := checkText(f.name, f.value, false); err != nil {
			return err
		}
	}
	switch {
	case r.HostIndex == 0 || r.HostIndex > 1<<31-1:
		return fmt.Errorf("hostIndex is %d: want 1 to %d", r.HostIndex, 1<<31-1)
	case len(r.NetNS) > maxPath:
		return fmt.Errorf("netns has %d bytes: want %d at most", len(r.NetNS), maxPath)
	case len(r.Addresses) > maxAddresses:
		return fmt.Errorf("addresses has %d entries: want %d at most", len(r.Addresses), maxAddresses)
	}
	return nil
}

// Valid lists all attachments of a network. No interface is attached or detached meanwhile, as CNI
// requires.
type Valid struct {
	Network     string       `json:"network"`
	Attachments []Attachment `json:"attachments"`
}

// Check returns an error that names the first field that is missing or too long.
func (v Valid) Check() error {
	if err := checkText("network", v.Network, true); err != nil {
		return err
	}
	for i, a := range v.Attachments {
		if err := a.Check(); err != nil {
			return fmt.Errorf("attachment %d: %w", i+1, err)
		}
	}
	return nil
}

// checkText checks a displayed field: names have no slash, no blank and only ASCII characters.
func checkText(field, s string, needed bool) error {
	switch {
	case s == "" && needed:
		return fmt.Errorf("%s is missing", field)
	case len(s) > maxText:
		return fmt.Errorf("%s has %d bytes: want %d at most", field, len(s), maxText)
	case strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c >= 0x7f || c == '/' }):
		return fmt.Errorf("%s %q has an invalid character", field, s)
	}
	return nil
}

// Endpoint is an interface of the node, as the agent knows it.
type Endpoint struct {
	Node      string    `json:"node,omitempty"` // that it is from, where agents of several are asked
	Interface string    `json:"interface"`
	Index     uint32    `json:"index"`
	Pod       string    `json:"pod,omitempty"` // namespace/name; empty in state unknown
	UID       string    `json:"uid,omitempty"`
	State     string    `json:"state"`            // unknown, pending, enforced, orphaned or conflicting
	Source    string    `json:"source,omitempty"` // `registered`, `key` or `namespace`; empty in state unknown
	Since     time.Time `json:"since"`            // when the state began
	Reason    string    `json:"reason,omitempty"` // why it is blocked
}

// VPP is a query about an interface of VPP, whose tag names its pod.
type VPP struct {
	Interface string // its name in VPP
	Namespace string // of the pod
	Name      string // of the pod
	// Until is the state to wait for: Enforced, or Pending, which means blocked or enforced.
	Until   string
	Timeout time.Duration // at most MaxTimeout
}

// Check returns an error that names the first field that is missing, too long, or out of range.
func (v VPP) Check() error {
	for _, f := range []struct{ name, value string }{{"namespace", v.Namespace}, {"name", v.Name}} {
		if err := checkText(f.name, f.value, true); err != nil {
			return err
		}
	}
	switch {
	case v.Interface == "" || len(v.Interface) > maxText:
		return fmt.Errorf("interface has %d bytes: want 1 to %d", len(v.Interface), maxText)
	case v.Until != Enforced && v.Until != Pending:
		return fmt.Errorf("until %q: want %s or %s", v.Until, Enforced, Pending)
	case v.Timeout < 0:
		return fmt.Errorf("timeout %s: want none below 0s", v.Timeout)
	}
	return nil
}

// Pending is the state of a pod's interface that is blocked until its policy is enforced. Unknown
// is the state of one that is not known to belong to a pod.
const (
	Pending = "pending"
	Unknown = "unknown"
)

// Enforced is the state in which an interface passes what policy permits. In every other state it
// is blocked.
const Enforced = "enforced"

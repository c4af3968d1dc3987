package expr

import (
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sluice-net/sluice/api"
)

// Port is a destination port as it is written, by its number or its name, with its protocol. One
// of a protocol without ports has neither.
type Port struct {
	Number   uint16
	Name     string
	Protocol api.Protocol // api.ICMP stands for that of the flow's family
}

// Text returns the name or the number, and nothing for a protocol without ports.
func (p Port) Text() string {
	if p.Name != "" || !p.Protocol.HasPorts() {
		return p.Name
	}
	return strconv.Itoa(int(p.Number))
}

// WantPort is how a port with its protocol is written.
const WantPort = "want for example 8080/TCP, http/TCP, 53/UDP or ICMP"

// ParsePort reads a port with its protocol: "8080/tcp", "http/udp", "8080" and "http" for TCP,
// "icmp". Protocols may be written in any case.
func ParsePort(text string) (Port, error) {
	number, protocol, _ := strings.Cut(text, "/")
	if strings.EqualFold(text, api.ICMP.String()) {
		return Port{Protocol: api.ICMP}, nil
	}
	p, ok := ParseNumberOrName(number)
	if !ok {
		return Port{}, fmt.Errorf("%s is not a port: %s", Quoted(text), WantPort)
	}
	p.Protocol = api.TCP
	if protocol != "" {
		if p.Protocol, ok = ParseTransport(protocol); !ok {
			return Port{}, fmt.Errorf("%s: protocol is none of TCP, UDP, SCTP", Quoted(text))
		}
	}
	return p, nil
}

// ParseNumberOrName reads a number from 1 to 65535, or the name of a port.
func ParseNumberOrName(text string) (Port, bool) {
	if n, err := strconv.ParseUint(text, 10, 16); err == nil {
		return Port{Number: uint16(n)}, n > 0
	}
	return Port{Name: text}, len(validation.IsValidPortName(text)) == 0
}

// ParseTransport reads a protocol that has ports, in any case.
func ParseTransport(text string) (api.Protocol, bool) {
	for _, p := range []api.Protocol{api.TCP, api.UDP, api.SCTP} {
		if strings.EqualFold(text, p.String()) {
			return p, true
		}
	}
	return 0, false
}

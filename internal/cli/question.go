package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

const flowHelp = `SRC and DST are namespace/pod, namespace/selector ("shop/app=web"; "shop/*" is all), a selector
("app=web"), or an address. The destination's port is a number or a name (":8080", ":http"). The
protocol is tcp unless another is given ("/udp", "/sctp", "/icmp", "/icmpv6", or a number such as
"/47"). Only tcp, udp and sctp have ports. IPv6 addresses with a port are in brackets.

DST may be a service, as in svc/shop/web:http or svc/platform/dns:53/udp: policy judges packets
after their destination was translated, so each endpoint has a verdict. The protocol is that of the
service's port unless one is given; a port of two protocols is two questions. An address of a
service is asked about in the same way.`

// twoEnds checks that both ends of a flow are given.
func twoEnds(cmd *cobra.Command, args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("%s asks about a flow: want SRC and DST:PORT/PROTO, as in \"%s shop/web-0 shop/cart-0:8080/tcp\"", cmd.Name(), cmd.CommandPath())
	}
	return nil
}

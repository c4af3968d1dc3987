package convert

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/api/model"
)

const wantPortName = "want at most 15 lower-case letters, digits and '-', with at least one letter"

// protocolOf returns TCP and false for a protocol that policies cannot name.
func protocolOf(p corev1.Protocol) (model.Protocol, bool) {
	switch p {
	case "", corev1.ProtocolTCP:
		return model.Protocol_PROTOCOL_TCP, true
	case corev1.ProtocolUDP:
		return model.Protocol_PROTOCOL_UDP, true
	case corev1.ProtocolSCTP:
		return model.Protocol_PROTOCOL_SCTP, true
	}
	return model.Protocol_PROTOCOL_TCP, false
}

func isPort(n int32) bool { return 1 <= n && n <= 65535 }

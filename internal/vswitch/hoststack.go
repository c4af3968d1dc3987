package vswitch

import (
	hostsession "go.fd.io/govpp/binapi/session"

	"github.com/sluice-net/sluice/internal/vswitch/internal/hoststack"
)

// SessionRule is a session rule of the vswitch.
type SessionRule = hoststack.Rule

// SessionVerdict is the decision of session rules about a connection attempt.
type SessionVerdict = hoststack.Verdict

// Actions of session rules. Any other value is the index of an application that takes the
// connection.
const (
	SessionRuleNone  = hoststack.None  // continues as if there were no rule
	SessionRuleDrop  = hoststack.Drop  // refuses the connection
	SessionRuleAllow = hoststack.Allow // lets it through
)

// sessionMessages returns the messages of the session layer.
func sessionMessages(h hoststack.Handlers) []*message {
	return []*message{
		request(h.EnableDisable), reply(new(hostsession.SessionEnableDisableReply)),
		request(h.EnableDisableV2), reply(new(hostsession.SessionEnableDisableV2Reply)),
		request(h.RuleAddDel), reply(new(hostsession.SessionRuleAddDelReply)),
		request(h.RulesDump), reply(new(hostsession.SessionRulesDetails)),
		request(h.RulesV2Dump), reply(new(hostsession.SessionRulesV2Details)),
		request(h.AppNamespaceAddDelV4), reply(new(hostsession.AppNamespaceAddDelV4Reply)),
	}
}

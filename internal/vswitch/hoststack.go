package vswitch

import (
	hostsession "go.fd.io/govpp/binapi/session"

	"github.com/sluice-net/sluice/internal/vswitch/internal/hoststack"
)

// SessionRule is a session rule as the vswitch has it.
type SessionRule = hoststack.Rule

// SessionVerdict is what session rules say of a connection attempt.
type SessionVerdict = hoststack.Verdict

// Actions of session rules. Anything else is the index of an application that takes the
// connection.
const (
	SessionRuleNone  = hoststack.None  // goes on as if there were no rule
	SessionRuleDrop  = hoststack.Drop  // refuses the connection
	SessionRuleAllow = hoststack.Allow // lets it through
)

// sessionMessages returns the messages about the session layer.
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

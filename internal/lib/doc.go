// Package lib is the family of small packages that know nothing of policy: settings, logs and flags of
// programs, servers of HTTP, terminals, traces, versions, scratch folders. What knows pods, policies or
// dataplanes lives elsewhere.
package lib

// Package alerts holds the alerts and the dashboard of deploy/monitoring against what the programs
// really serve: it breaks them, scrapes them, and has Prometheus' own engine evaluate the rules. It
// is a module of its own, because Prometheus is large.
package alerts

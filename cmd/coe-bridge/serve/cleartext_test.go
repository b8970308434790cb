package serve

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
)

func TestInClear(t *testing.T) {
	for url, want := range map[string]bool{
		"http://127.0.0.1:8181": false, "http://[::1]:8181": false, "https://[::]:8181": false, "http://[::]:8181": true, "http://192.168.33.1:8181": true,
	} {
		require.Equal(t, want, inClear(url), url)
	}
}

// Each connection to another machine in cleartext is a warning of its own, and those that
// stay on this machine or are not used are none.
func TestWarnOfCleartext(t *testing.T) {
	for line, want := range map[string][]string{
		"--backend ovn --ovn-nb tcp:10.0.0.1:6641,tcp:10.0.0.2:6641":                                                       {"--ovn-nb"},
		"--backend ovn --ovn-nb ssl:10.0.0.1:6641,tcp:10.0.0.2:6641":                                                       {"--ovn-nb"},
		"--backend ovn,odl --ovn-nb tcp:[fd00::1]:6641 --odl-url http://10.0.0.1:8181":                                     {"--ovn-nb", "--odl-url"},
		"--etcd-endpoints https://10.0.0.1:2379,http://10.0.0.2:2379":                                                      {"--etcd-endpoints"},
		"--etcd-endpoints 10.0.0.1:2379":                                                                                   {"--etcd-endpoints"},
		"--backend odl --odl-url https://10.0.0.1:8443 --ovn-nb tcp:10.0.0.1:6641":                                         nil,
		"--backend ovn,odl --ovn-nb tcp:127.0.0.1:6641 --odl-url http://127.0.0.1:8181 --etcd-endpoints http://[::1]:2379": nil,
		"--backend ovn --ovn-nb unix:/run/ovn/ovnnb_db.sock --odl-url http://10.0.0.1:8181":                                nil,
		"--backend ovn --ovn-nb ssl:10.0.0.1:6641 --etcd-endpoints localhost:2379":                                         nil,
	} {
		var f serveFlags
		cmd := &cobra.Command{}
		f.register(cmd)
		require.NoError(t, cmd.ParseFlags(strings.Fields(line)))
		var log strings.Builder
		f.warnOfCleartext(slog.New(slog.NewTextHandler(&log, nil)))
		require.Equal(t, len(want), strings.Count(log.String(), "level=WARN"), "%s: %s", line, log.String())
		for _, flag := range want {
			require.Contains(t, log.String(), "flag="+flag, line)
		}
	}
}

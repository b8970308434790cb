package plugin_test

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/stretchr/testify/require"

	"github.com/coe-bridge/coe-bridge/cni/call"
	"github.com/coe-bridge/coe-bridge/cni/plugin"
)

// serve has an agent answer on a socket.
func serve(t *testing.T, answer call.Answer) (socket string) {
	socket = filepath.Join(t.TempDir(), "cni.sock")
	l, err := call.Listen(t.Context(), socket)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- call.Serve(ctx, l, slog.New(slog.DiscardHandler), func(context.Context, call.Request) call.Answer { return answer })
	}()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return socket
}

func arguments(socket string) *skel.CmdArgs {
	return &skel.CmdArgs{ContainerID: "c1", IfName: "eth0", StdinData: fmt.Appendf(nil, `{"cniVersion":"1.1.0","socket":%q}`, socket)}
}

func code(t *testing.T, err error) uint {
	t.Helper()
	var said *types.Error
	require.ErrorAs(t, err, &said)
	return said.Code
}

func TestNoAgent(t *testing.T) {
	none := arguments(filepath.Join(t.TempDir(), "none"))
	f := plugin.Funcs()
	require.EqualValues(t, types.ErrTryAgainLater, code(t, f.Add(none)))
	require.EqualValues(t, types.ErrTryAgainLater, code(t, f.Check(none)))
	require.EqualValues(t, types.ErrTryAgainLater, code(t, f.Del(none)))
	require.EqualValues(t, types.ErrTryAgainLater, code(t, f.GC(none)))
	require.EqualValues(t, types.ErrPluginNotAvailable, code(t, f.Status(none)))
}

func TestAnswers(t *testing.T) {
	f := plugin.Funcs()
	refused := arguments(serve(t, call.Answer{Error: types.NewError(7, "no", "because")}))
	require.EqualValues(t, 7, code(t, f.Add(refused)))
	require.EqualValues(t, 7, code(t, f.Status(refused)))
	empty := arguments(serve(t, call.Answer{}))
	require.NoError(t, f.Del(empty))
	require.ErrorContains(t, f.Add(empty), "without a result")
}

func TestBadConfiguration(t *testing.T) {
	require.EqualValues(t, types.ErrInvalidNetworkConfig, code(t, plugin.Funcs().Add(&skel.CmdArgs{StdinData: []byte(`{"socket":1}`)})))
}

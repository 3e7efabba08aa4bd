// handover measures how long a Lease is nobody's when its holder lets go of it: two electors of client-go, which
// controller-runtime uses, with ReleaseOnCancel and the usual 15/10/2 s. From the moment the leader is told to end to
// the end of the new leader's first write.
package main

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"time"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"stratum.ciq.com/peers/cluster"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig file")
	namespace := flag.String("namespace", "default", "namespace of the Lease and the ConfigMap")
	configMap := flag.String("configmap", "handover", "what a new leader writes to; it has to exist")
	rounds := flag.Int("rounds", 5, "hand-overs")
	flag.Parse()

	client, err := kubernetes.NewForConfig(cluster.Config(*kubeconfig))
	cluster.Check(err)
	written := make(chan time.Time, 1)
	candidate := func(round int) context.CancelFunc {
		return campaign(client, *namespace, fmt.Sprintf("candidate-%d", round), func() {
			patch := fmt.Appendf(nil, `{"data":{"leader":"candidate-%d"}}`, round)
			_, err := client.CoreV1().ConfigMaps(*namespace).Patch(
				context.Background(), *configMap, types.MergePatchType, patch, meta.PatchOptions{})
			cluster.Check(err)
			written <- time.Now()
		})
	}

	leave := candidate(0)
	<-written
	var milliseconds []float64
	for round := range *rounds {
		next := candidate(round + 1)
		// Long enough for the follower to have seen the holder: what is measured is a hand-over, not a start. The odd
		// part keeps the moment from always falling on the same point of the follower's two-second poll.
		time.Sleep(3*time.Second + time.Duration(round*370)*time.Millisecond)
		told := time.Now()
		leave()
		milliseconds = append(milliseconds, float64((<-written).Sub(told).Microseconds())/1000)
		leave = next
	}
	leave()
	cluster.Print(map[string]any{"milliseconds": milliseconds})
}

// campaign runs for the Lease in the background; the returned function lets go of it.
func campaign(client kubernetes.Interface, namespace, identity string, lead func()) context.CancelFunc {
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  meta.ObjectMeta{Name: "handover", Namespace: namespace},
		Client:     client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock:            lock,
			ReleaseOnCancel: true,
			LeaseDuration:   15 * time.Second,
			RenewDeadline:   10 * time.Second,
			RetryPeriod:     2 * time.Second,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) { lead() },
				OnStoppedLeading: func() {},
			},
		})
	})
	return func() {
		cancel()
		done.Wait()
	}
}

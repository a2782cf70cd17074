# bash completion for kctl, made by `kctl completion bash`; ./dev completions renews it.
_kctl() {
    local noun='' verb='' words='' flags='' kind='' position piece rest=$COMP_LINE
    local -a given=()
    COMPREPLY=()
    # bash divides words at : and =, and completes what is after the last of them.
    for ((position = 0; position <= COMP_CWORD; position++)); do
        piece=${COMP_WORDS[position]}
        if [[ $position -eq 0 || $rest == [[:space:]]* ]]; then given+=("$piece"); else given[-1]+=$piece; fi
        rest=${rest#"${rest%%[![:space:]]*}"}
        rest=${rest#"$piece"}
    done
    [[ $piece != [:=] ]] || piece=''
    local cur=${given[-1]} prev=${given[${#given[@]} - 2]}
    if [[ $cur == --*=* ]]; then prev=${cur%%=*} cur=${cur#*=}; fi
    for ((position = 1; position < ${#given[@]} - 1; position++)); do
        case ${given[position]} in
        -b | --bootstrap-server | --command-config | --profile | --resolve | --timeout | --format) ((position++)) ;;
        -*) ;;
        *)
            if [[ -n $noun ]]; then verb=${given[position]} && break; fi
            noun=${given[position]}
            ;;
        esac
    done
    case $noun in
    '') words='topics produce consume copy groups transactions producers streams offsets records cluster verify perf api-versions features metadata-quorum doctor top reassign elect configs plan apply acls quotas users tokens dump-log tls loggers metrics broker zookeeper export tables spark profile mcp completion' flags='-b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --help --version' ;;
    topics) [[ -n $verb ]] || words='list describe create alter delete' flags=--help ;;
    produce) verb=produce ;;
    consume) verb=consume ;;
    copy) verb=copy ;;
    groups) [[ -n $verb ]] || words='list describe lag members history delete delete-offsets reset-offsets restore export import' flags=--help ;;
    transactions) [[ -n $verb ]] || words='list describe find-hanging abort' flags=--help ;;
    producers) [[ -n $verb ]] || words='describe' flags=--help ;;
    streams) [[ -n $verb ]] || words='reset' flags=--help ;;
    offsets) [[ -n $verb ]] || words='get' flags=--help ;;
    records) [[ -n $verb ]] || words='delete' flags=--help ;;
    cluster) [[ -n $verb ]] || words='describe log-dirs roll maintenance health start status stop' flags=--help ;;
    verify) [[ -n $verb ]] || words='replicas' flags=--help ;;
    perf) [[ -n $verb ]] || words='produce consume latency' flags=--help ;;
    api-versions) verb=api-versions ;;
    features) [[ -n $verb ]] || words='describe upgrade downgrade' flags=--help ;;
    metadata-quorum) [[ -n $verb ]] || words='describe' flags=--help ;;
    doctor) verb=doctor ;;
    top) verb=top ;;
    reassign) [[ -n $verb ]] || words='plan plan-disks execute status verify cancel list' flags=--help ;;
    elect) verb=elect ;;
    configs) [[ -n $verb ]] || words='describe alter diff' flags=--help ;;
    plan) verb=plan ;;
    apply) verb=apply ;;
    acls) [[ -n $verb ]] || words='list add remove check export apply' flags=--help ;;
    quotas) [[ -n $verb ]] || words='describe alter check' flags=--help ;;
    users) [[ -n $verb ]] || words='list create alter delete' flags=--help ;;
    tokens) [[ -n $verb ]] || words='create describe renew expire' flags=--help ;;
    dump-log) verb=dump-log ;;
    tls) [[ -n $verb ]] || words='check' flags=--help ;;
    loggers) [[ -n $verb ]] || words='list set reset' flags=--help ;;
    metrics) [[ -n $verb ]] || words='show serve' flags=--help ;;
    broker) [[ -n $verb ]] || words='start stop status check bundle' flags=--help ;;
    zookeeper) [[ -n $verb ]] || words='start ls get stat' flags=--help ;;
    export) verb=export ;;
    tables) [[ -n $verb ]] || words='verify status import compact profile' flags=--help ;;
    spark) [[ -n $verb ]] || words='export warmup' flags=--help ;;
    profile) [[ -n $verb ]] || words='add use list show rename remove' flags=--help ;;
    mcp) verb=mcp ;;
    completion) verb=completion ;;
    esac
    case "$noun $verb" in
    *' ')
        case $prev in
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        esac
        ;;
    'topics list')
        flags='--internal --under-replicated --unavailable --under-min-isr --at-min-isr --overrides --topic-regex --id --compat -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --expect --watch --rounds --help'
        case $prev in
        --compat) words='kafka-2.8 kafka-3 kafka-4' flags='' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --topic-regex | --id | -b | --bootstrap-server | --resolve | --timeout | --expect | --watch | --rounds) kind='none' ;;
        esac
        ;;
    'topics describe')
        flags='--under-replicated --unavailable --under-min-isr --at-min-isr --overrides --topic-regex --id --compat -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --expect --watch --rounds --help'
        case $prev in
        --compat) words='kafka-2.8 kafka-3 kafka-4' flags='' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --topic-regex | --id | -b | --bootstrap-server | --resolve | --timeout | --expect | --watch | --rounds) kind='none' ;;
        *) [[ $cur == -* ]] || kind='names-topics' ;;
        esac
        ;;
    'topics create')
        flags='--partitions --replication-factor --config --replica-assignment --if-not-exists --dry-run --compat -y --yes -b --bootstrap-server --command-config --profile --resolve --timeout --confirm --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --compat) words='kafka-2.8 kafka-3 kafka-4' flags='' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --confirm) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --partitions | --replication-factor | --config | --replica-assignment | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        *) [[ $cur == -* ]] || kind='names-topics' ;;
        esac
        ;;
    'topics alter')
        flags='--partitions --replica-assignment --config --delete-config --topic-regex --expect --dry-run -y --yes -b --bootstrap-server --command-config --profile --resolve --timeout --confirm --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --confirm) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --partitions | --replica-assignment | --config | --delete-config | --topic-regex | --expect | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        *) [[ $cur == -* ]] || kind='names-topics' ;;
        esac
        ;;
    'topics delete')
        flags='--topic-regex --expect --if-exists --dry-run -y --yes -b --bootstrap-server --command-config --profile --resolve --timeout --confirm --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --confirm) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --topic-regex | --expect | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        *) [[ $cur == -* ]] || kind='names-topics' ;;
        esac
        ;;
    'produce produce')
        flags='--file --input -f --record-format --key --key-separator --null-marker -H --header --partition --acks --codec --value-schema --key-schema --schema-registry --transactional-id -y --yes -b --bootstrap-server --command-config --profile --resolve --timeout --confirm --format --schema --human --no-color --quiet --debug --help'
        case $prev in
        --file) kind='file' ;;
        --input) words='lines jsonl whole' flags='' ;;
        --acks) words='all -1 1 0' flags='' ;;
        --codec) words='none gzip snappy lz4 zstd' flags='' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --confirm) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        -f | --record-format | --key | --key-separator | --null-marker | -H | --header | --partition | --value-schema | --key-schema | --schema-registry | --transactional-id | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        *) [[ $cur == -* ]] || kind='names-topics' ;;
        esac
        ;;
    'consume consume')
        flags='--from --until --key --partition-of-key --grep --where --record-header -n --max-records --limit --expect --partition --follow --group --assignor --isolation --on-truncation --formatter -f --record-format --null-marker --reversible --value-only --decode --schema-registry --mask --mask-regex --compat -b --bootstrap-server --command-config --profile --resolve --timeout --confirm --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --group) kind='names-groups' ;;
        --isolation) words='read_committed read_uncommitted' flags='' ;;
        --on-truncation) words='stop continue' flags='' ;;
        --formatter) words='offsets group-metadata transactions' flags='' ;;
        --decode) words='value key both' flags='' ;;
        --compat) words='kafka-2.8 kafka-3 kafka-4' flags='' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --confirm) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --from | --until | --key | --grep | --where | --record-header | -n | --max-records | --limit | --expect | --partition | --assignor | -f | --record-format | --null-marker | --schema-registry | --mask | --mask-regex | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        *) [[ $cur == -* ]] || kind='names-topics' ;;
        esac
        ;;
    'copy copy')
        flags='--from-cluster --from-config --from-profile --to-cluster --to-config --to-profile --from --until --key --partition-of-key --grep --where --record-header -n --max-records --limit --partition --partitions --isolation --codec --rate --resume-group --progress --transactional-id --groups --dry-run -b --bootstrap-server --command-config --profile --resolve --timeout --confirm --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --from-config) kind='file' ;;
        --from-profile) kind='names-profiles' ;;
        --to-config) kind='file' ;;
        --to-profile) kind='names-profiles' ;;
        --partitions) words='keep hash' flags='' ;;
        --isolation) words='read_committed read_uncommitted' flags='' ;;
        --codec) words='none gzip snappy lz4 zstd' flags='' ;;
        --resume-group) kind='names-groups' ;;
        --progress) words='check accept rewind reset' flags='' ;;
        --groups) kind='names-groups' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --confirm) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --from-cluster | --to-cluster | --from | --until | --key | --grep | --where | --record-header | -n | --max-records | --limit | --partition | --rate | --transactional-id | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        *) [[ $cur == -* ]] || kind='names-topics' ;;
        esac
        ;;
    'groups list')
        flags='--state --type --group-regex --compat --verbose -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --expect --watch --rounds --help'
        case $prev in
        --state) words='Empty PreparingRebalance CompletingRebalance Assigning Reconciling NotReady Stable Dead' flags='' ;;
        --type) words='classic consumer share streams' flags='' ;;
        --compat) words='kafka-2.8 kafka-3 kafka-4' flags='' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --group-regex | -b | --bootstrap-server | --resolve | --timeout | --expect | --watch | --rounds) kind='none' ;;
        esac
        ;;
    'groups describe')
        flags='--show --all --group-regex --empty-name --compat --verbose -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --expect --watch --rounds --help'
        case $prev in
        --show) words='offsets members state' flags='' ;;
        --compat) words='kafka-2.8 kafka-3 kafka-4' flags='' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --group-regex | -b | --bootstrap-server | --resolve | --timeout | --expect | --watch | --rounds) kind='none' ;;
        *) [[ $cur == -* ]] || kind='names-groups' ;;
        esac
        ;;
    'groups lag')
        flags='--by --group-regex --topic --topic-regex --lag --sort --isolation --window --check --watch --interval --rounds -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --expect --help'
        case $prev in
        --by) words='group topic partition member all' flags='' ;;
        --topic) kind='names-topics' ;;
        --sort) words='lag time verdict name' flags='' ;;
        --isolation) words='read_committed read_uncommitted' flags='' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --group-regex | --topic-regex | --lag | --window | --interval | --rounds | -b | --bootstrap-server | --resolve | --timeout | --expect) kind='none' ;;
        *) [[ $cur == -* ]] || kind='names-groups' ;;
        esac
        ;;
    'groups members')
        flags='--all --group-regex -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --expect --watch --rounds --help'
        case $prev in
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --group-regex | -b | --bootstrap-server | --resolve | --timeout | --expect | --watch | --rounds) kind='none' ;;
        *) [[ $cur == -* ]] || kind='names-groups' ;;
        esac
        ;;
    'groups history')
        flags='--topic --topic-regex --since --limit -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --expect --watch --rounds --help'
        case $prev in
        --topic) kind='names-topics' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --topic-regex | --since | --limit | -b | --bootstrap-server | --resolve | --timeout | --expect | --watch | --rounds) kind='none' ;;
        *) [[ $cur == -* ]] || kind='names-groups' ;;
        esac
        ;;
    'groups delete')
        flags='--all --group-regex --empty-name --dry-run --no-backup --backup-dir -y --yes -b --bootstrap-server --command-config --profile --resolve --timeout --confirm --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --backup-dir) kind='directory' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --confirm) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --group-regex | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        *) [[ $cur == -* ]] || kind='names-groups' ;;
        esac
        ;;
    'groups delete-offsets')
        flags='--topic --topic-regex --all-topics --dry-run --no-backup --backup-dir -y --yes -b --bootstrap-server --command-config --profile --resolve --timeout --confirm --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --topic) kind='names-topics' ;;
        --backup-dir) kind='directory' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --confirm) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --topic-regex | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        *) [[ $cur == -* ]] || kind='names-groups' ;;
        esac
        ;;
    'groups reset-offsets')
        flags='--all --group-regex --topic --topic-regex --all-topics --to-earliest --to-latest --to-current --to-offset --shift-by --to-datetime --by-duration --from-file --export --execute --dry-run --no-backup --backup-dir --compat -y --yes -b --bootstrap-server --command-config --profile --resolve --timeout --confirm --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --topic) kind='names-topics' ;;
        --from-file) kind='file' ;;
        --backup-dir) kind='directory' ;;
        --compat) words='kafka-2.8 kafka-3 kafka-4' flags='' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --confirm) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --group-regex | --topic-regex | --to-offset | --shift-by | --to-datetime | --by-duration | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        *) [[ $cur == -* ]] || kind='names-groups' ;;
        esac
        ;;
    'groups restore')
        flags='--at --backup --topic --topic-regex --execute --dry-run --accept-lost --no-backup --backup-dir -y --yes -b --bootstrap-server --command-config --profile --resolve --timeout --confirm --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --backup) kind='file' ;;
        --topic) kind='names-topics' ;;
        --backup-dir) kind='directory' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --confirm) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --at | --topic-regex | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        *) [[ $cur == -* ]] || kind='names-groups' ;;
        esac
        ;;
    'groups export')
        flags='--all --group-regex --topic --topic-regex --as --file -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --topic) kind='names-topics' ;;
        --as) words='json csv' flags='' ;;
        --file) kind='file' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --group-regex | --topic-regex | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        *) [[ $cur == -* ]] || kind='names-groups' ;;
        esac
        ;;
    'groups import')
        flags='--group --group-regex --topic --topic-regex --execute --dry-run --accept-lost --no-backup --backup-dir -y --yes -b --bootstrap-server --command-config --profile --resolve --timeout --confirm --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --group) kind='names-groups' ;;
        --topic) kind='names-topics' ;;
        --backup-dir) kind='directory' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --confirm) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --group-regex | --topic-regex | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        *) [[ $cur == -* ]] || kind='file' ;;
        esac
        ;;
    'transactions list')
        flags='--state --producer-id --compat -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --expect --watch --rounds --help'
        case $prev in
        --state) words='Empty Ongoing PrepareCommit PrepareAbort CompleteCommit CompleteAbort Dead PrepareEpochFence' flags='' ;;
        --compat) words='kafka-3 kafka-4' flags='' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --producer-id | -b | --bootstrap-server | --resolve | --timeout | --expect | --watch | --rounds) kind='none' ;;
        esac
        ;;
    'transactions describe')
        flags='--compat -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --expect --watch --rounds --help'
        case $prev in
        --compat) words='kafka-3 kafka-4' flags='' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        -b | --bootstrap-server | --resolve | --timeout | --expect | --watch | --rounds) kind='none' ;;
        *) [[ $cur == -* ]] || kind='names-transactions' ;;
        esac
        ;;
    'transactions find-hanging')
        flags='--topic --idle --compat -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --expect --watch --rounds --help'
        case $prev in
        --topic) kind='names-topics' ;;
        --compat) words='kafka-3 kafka-4' flags='' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --idle | -b | --bootstrap-server | --resolve | --timeout | --expect | --watch | --rounds) kind='none' ;;
        esac
        ;;
    'transactions abort')
        flags='--start-offset --producer-id --producer-epoch --coordinator-epoch --force --dry-run -y --yes -b --bootstrap-server --command-config --profile --resolve --timeout --confirm --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --confirm) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --start-offset | --producer-id | --producer-epoch | --coordinator-epoch | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        *) [[ $cur == -* ]] || kind='names-topics' ;;
        esac
        ;;
    'producers describe')
        flags='--partition --broker --open --compat -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --expect --watch --rounds --help'
        case $prev in
        --broker) kind='names-brokers' ;;
        --compat) words='kafka-3 kafka-4' flags='' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --partition | -b | --bootstrap-server | --resolve | --timeout | --expect | --watch | --rounds) kind='none' ;;
        *) [[ $cur == -* ]] || kind='names-topics' ;;
        esac
        ;;
    'streams reset')
        flags='--input-topic --intermediate-topic --internal-topic --to-earliest --to-latest --to-offset --shift-by --to-datetime --by-duration --from-file --no-backup --backup-dir -y --yes --dry-run -b --bootstrap-server --command-config --profile --resolve --timeout --confirm --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --input-topic) kind='names-topics' ;;
        --intermediate-topic) kind='names-topics' ;;
        --internal-topic) kind='names-topics' ;;
        --from-file) kind='file' ;;
        --backup-dir) kind='directory' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --confirm) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --to-offset | --shift-by | --to-datetime | --by-duration | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        esac
        ;;
    'offsets get')
        flags='--topic-regex --time --partition --committed --compat -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --expect --watch --rounds --help'
        case $prev in
        --compat) words='kafka-2.8 kafka-3 kafka-4' flags='' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --topic-regex | --time | --partition | -b | --bootstrap-server | --resolve | --timeout | --expect | --watch | --rounds) kind='none' ;;
        *) [[ $cur == -* ]] || kind='names-topics' ;;
        esac
        ;;
    'records delete')
        flags='--before-offset --before-time --to-end --offset-json-file --dry-run -y --yes -b --bootstrap-server --command-config --profile --resolve --timeout --confirm --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --offset-json-file) kind='file' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --confirm) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --before-offset | --before-time | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        *) [[ $cur == -* ]] || kind='names-topics' ;;
        esac
        ;;
    'cluster describe')
        flags='-b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --expect --watch --rounds --help'
        case $prev in
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        -b | --bootstrap-server | --resolve | --timeout | --expect | --watch | --rounds) kind='none' ;;
        esac
        ;;
    'cluster log-dirs')
        flags='--broker --topic --replicas --by --compat -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --expect --watch --rounds --help'
        case $prev in
        --broker) kind='names-brokers' ;;
        --topic) kind='names-topics' ;;
        --by) words='broker topic' flags='' ;;
        --compat) words='kafka-2.8 kafka-3 kafka-4' flags='' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        -b | --bootstrap-server | --resolve | --timeout | --expect | --watch | --rounds) kind='none' ;;
        esac
        ;;
    'cluster roll')
        flags='--restart-command --data-dir --brokers --broker-timeout --allow-unavailable --dry-run -y --yes -b --bootstrap-server --command-config --profile --resolve --timeout --confirm --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --data-dir) kind='directory' ;;
        --brokers) kind='names-brokers' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --confirm) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --restart-command | --broker-timeout | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        esac
        ;;
    'cluster maintenance')
        flags='--allow-unavailable --state-dir --dry-run -y --yes -b --bootstrap-server --command-config --profile --resolve --timeout --confirm --format --header --schema --human --no-color --quiet --debug --help'
        words='on off'
        case $prev in
        --state-dir) kind='directory' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --confirm) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        *) [[ $cur == -* || " ${given[*]:0:${#given[@]} - 1} " != *' '@(on|off)' '* ]] || kind='names-brokers' ;;
        esac
        ;;
    'cluster health')
        flags='--wait -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --expect --watch --rounds --help'
        case $prev in
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --wait | -b | --bootstrap-server | --resolve | --timeout | --expect | --watch | --rounds) kind='none' ;;
        esac
        ;;
    'cluster start')
        flags='--brokers --data-dir --port --zookeeper --secure -o --override --stop-with --log-format --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --brokers) kind='names-brokers' ;;
        --data-dir) kind='directory' ;;
        --log-format) words='text json' flags='' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --port | --zookeeper | -o | --override | --stop-with) kind='none' ;;
        esac
        ;;
    'cluster status')
        flags='--data-dir --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --data-dir) kind='directory' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        esac
        ;;
    'cluster stop')
        flags='--data-dir --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --data-dir) kind='directory' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        esac
        ;;
    'verify replicas')
        flags='--topic --interval -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --topic) kind='names-topics' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --interval | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        esac
        ;;
    'perf produce')
        flags='--records --duration --rate --size --payload-file --acks --compression --linger --batch-size --warmup --interval --histogram --client --create --partitions --replication-factor --dry-run -y --yes -b --bootstrap-server --command-config --profile --resolve --timeout --confirm --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --payload-file) kind='file' ;;
        --acks) words='all -1 1 0' flags='' ;;
        --compression) words='none gzip snappy lz4 zstd' flags='' ;;
        --client) words='auto librdkafka kctl' flags='' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --confirm) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --records | --duration | --rate | --size | --linger | --batch-size | --warmup | --interval | --partitions | --replication-factor | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        *) [[ $cur == -* ]] || kind='names-topics' ;;
        esac
        ;;
    'perf consume')
        flags='--from --records --duration --warmup --interval --client -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --from) words='start end' flags='' ;;
        --client) words='auto librdkafka kctl' flags='' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --records | --duration | --warmup | --interval | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        *) [[ $cur == -* ]] || kind='names-topics' ;;
        esac
        ;;
    'perf latency')
        flags='--records --duration --rate --size --payload-file --acks --warmup --interval --histogram --client --create --partitions --replication-factor --dry-run -y --yes -b --bootstrap-server --command-config --profile --resolve --timeout --confirm --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --payload-file) kind='file' ;;
        --acks) words='all 1' flags='' ;;
        --client) words='auto librdkafka kctl' flags='' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --confirm) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --records | --duration | --rate | --size | --warmup | --interval | --partitions | --replication-factor | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        *) [[ $cur == -* ]] || kind='names-topics' ;;
        esac
        ;;
    'api-versions api-versions')
        flags='--differing -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --expect --watch --rounds --help'
        case $prev in
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        -b | --bootstrap-server | --resolve | --timeout | --expect | --watch | --rounds) kind='none' ;;
        esac
        ;;
    'features describe')
        flags='-b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --expect --watch --rounds --help'
        case $prev in
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        -b | --bootstrap-server | --resolve | --timeout | --expect | --watch | --rounds) kind='none' ;;
        esac
        ;;
    'features upgrade')
        flags='--feature --metadata-version --dry-run -y --yes -b --bootstrap-server --command-config --profile --resolve --timeout --confirm --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --confirm) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --feature | --metadata-version | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        esac
        ;;
    'features downgrade')
        flags='--feature --metadata-version --unsafe --dry-run -y --yes -b --bootstrap-server --command-config --profile --resolve --timeout --confirm --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --confirm) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --feature | --metadata-version | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        esac
        ;;
    'metadata-quorum describe')
        flags='--replication -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --expect --watch --rounds --help'
        case $prev in
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        -b | --bootstrap-server | --resolve | --timeout | --expect | --watch | --rounds) kind='none' ;;
        esac
        ;;
    'doctor doctor')
        flags='--fail-on --silence --snapshot --from -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --expect --watch --rounds --help'
        case $prev in
        --fail-on) words='critical error warning note' flags='' ;;
        --from) kind='file' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --silence | -b | --bootstrap-server | --resolve | --timeout | --expect | --watch | --rounds) kind='none' ;;
        esac
        ;;
    'top top')
        flags='--interval --once --metrics --no-metrics -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --interval | --metrics | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        esac
        ;;
    'reassign plan')
        flags='--topic --to-brokers --exclude --leaders-only --throttle --phases --max-moves --output -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --help'
        words='drain add replication-factor rebalance'
        case $prev in
        --topic) kind='names-topics' ;;
        --to-brokers) kind='names-brokers' ;;
        --output) kind='file' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --exclude | --throttle | --phases | --max-moves | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        esac
        ;;
    'reassign plan-disks')
        flags='--drain --topic --output -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --topic) kind='names-topics' ;;
        --output) kind='file' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --drain | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        *) [[ $cur == -* ]] || kind='names-brokers' ;;
        esac
        ;;
    'reassign execute')
        flags='--reassignment-json-file --throttle --wait --max-moves --additional --rollback-file --state-dir --dry-run --compat -y --yes -b --bootstrap-server --command-config --profile --resolve --timeout --confirm --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --reassignment-json-file) kind='file' ;;
        --rollback-file) kind='file' ;;
        --state-dir) kind='directory' ;;
        --compat) words='kafka-2.8 kafka-3 kafka-4' flags='' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --confirm) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --throttle | --max-moves | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        esac
        ;;
    'reassign status')
        flags='--reassignment-json-file --state-dir -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --expect --watch --rounds --help'
        case $prev in
        --reassignment-json-file) kind='file' ;;
        --state-dir) kind='directory' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        -b | --bootstrap-server | --resolve | --timeout | --expect | --watch | --rounds) kind='none' ;;
        esac
        ;;
    'reassign verify')
        flags='--reassignment-json-file --state-dir --compat -y --yes -b --bootstrap-server --command-config --profile --resolve --timeout --confirm --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --reassignment-json-file) kind='file' ;;
        --state-dir) kind='directory' ;;
        --compat) words='kafka-2.8 kafka-3 kafka-4' flags='' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --confirm) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        esac
        ;;
    'reassign cancel')
        flags='--reassignment-json-file --all --state-dir --dry-run --compat -y --yes -b --bootstrap-server --command-config --profile --resolve --timeout --confirm --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --reassignment-json-file) kind='file' ;;
        --state-dir) kind='directory' ;;
        --compat) words='kafka-2.8 kafka-3 kafka-4' flags='' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --confirm) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        esac
        ;;
    'reassign list')
        flags='--compat -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --expect --watch --rounds --help'
        case $prev in
        --compat) words='kafka-2.8 kafka-3 kafka-4' flags='' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        -b | --bootstrap-server | --resolve | --timeout | --expect | --watch | --rounds) kind='none' ;;
        esac
        ;;
    'elect elect')
        flags='--preferred --unclean --topic --partition --path-to-json-file --dry-run --compat -y --yes -b --bootstrap-server --command-config --profile --resolve --timeout --confirm --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --topic) kind='names-topics' ;;
        --path-to-json-file) kind='file' ;;
        --compat) words='kafka-2.8 kafka-3 kafka-4' flags='' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --confirm) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --partition | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        esac
        ;;
    'configs describe')
        flags='--all --property --topic-regex --client --compat -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --expect --watch --rounds --help'
        words='topic broker logger group client-metrics user client ip'
        case $prev in
        --compat) words='kafka-2.8 kafka-3 kafka-4' flags='' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --property | --topic-regex | --client | -b | --bootstrap-server | --resolve | --timeout | --expect | --watch | --rounds) kind='none' ;;
        *) [[ $cur == -* || " ${given[*]:0:${#given[@]} - 1} " != *' '@(topic|broker|logger|group|client-metrics|user|client|ip)' '* ]] || kind='names-resources' ;;
        esac
        ;;
    'configs alter')
        flags='--set --delete --append --subtract --dry-run --topic-regex --client --compat -y --yes -b --bootstrap-server --command-config --profile --resolve --timeout --confirm --format --header --schema --human --no-color --quiet --debug --help'
        words='topic broker logger group client-metrics user client ip'
        case $prev in
        --compat) words='kafka-2.8 kafka-3 kafka-4' flags='' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --confirm) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --set | --delete | --append | --subtract | --topic-regex | --client | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        *) [[ $cur == -* || " ${given[*]:0:${#given[@]} - 1} " != *' '@(topic|broker|logger|group|client-metrics|user|client|ip)' '* ]] || kind='names-resources' ;;
        esac
        ;;
    'configs diff')
        flags='--own --property --file --other-bootstrap-server --other-command-config --other-profile -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --expect --watch --rounds --help'
        words='topic broker logger group client-metrics user client ip'
        case $prev in
        --file) kind='file' ;;
        --other-command-config) kind='file' ;;
        --other-profile) kind='names-profiles' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --property | --other-bootstrap-server | -b | --bootstrap-server | --resolve | --timeout | --expect | --watch | --rounds) kind='none' ;;
        *) [[ $cur == -* || " ${given[*]:0:${#given[@]} - 1} " != *' '@(topic|broker|logger|group|client-metrics|user|client|ip)' '* ]] || kind='names-resources' ;;
        esac
        ;;
    'plan plan')
        flags='--delete --export -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        *) [[ $cur == -* ]] || kind='file' ;;
        esac
        ;;
    'apply apply')
        flags='--delete --throttle --state-dir --dry-run -y --yes -b --bootstrap-server --command-config --profile --resolve --timeout --confirm --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --state-dir) kind='directory' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --confirm) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --throttle | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        *) [[ $cur == -* ]] || kind='file' ;;
        esac
        ;;
    'acls list')
        flags='--topic --group --transactional-id --delegation-token --user --cluster --prefix --literal --match --allow --deny --operation --host --compat -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --expect --watch --rounds --help'
        case $prev in
        --compat) words='kafka-2.8 kafka-3 kafka-4' flags='' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --topic | --group | --transactional-id | --delegation-token | --user | --allow | --deny | --operation | --host | -b | --bootstrap-server | --resolve | --timeout | --expect | --watch | --rounds) kind='none' ;;
        esac
        ;;
    'acls add')
        flags='--topic --group --transactional-id --delegation-token --user --cluster --prefix --allow --deny --operation --host --producer --idempotent --consumer --dry-run --compat -y --yes -b --bootstrap-server --command-config --profile --resolve --timeout --confirm --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --compat) words='kafka-2.8 kafka-3 kafka-4' flags='' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --confirm) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --topic | --group | --transactional-id | --delegation-token | --user | --allow | --deny | --operation | --host | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        esac
        ;;
    'acls remove')
        flags='--topic --group --transactional-id --delegation-token --user --cluster --prefix --any-resource --allow --deny --operation --host --dry-run --compat -y --yes -b --bootstrap-server --command-config --profile --resolve --timeout --confirm --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --compat) words='kafka-2.8 kafka-3 kafka-4' flags='' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --confirm) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --topic | --group | --transactional-id | --delegation-token | --user | --allow | --deny | --operation | --host | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        esac
        ;;
    'acls check')
        flags='--host --from -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --from) kind='file' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --host | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        esac
        ;;
    'acls export')
        flags='-b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        esac
        ;;
    'acls apply')
        flags='--delete --check --dry-run -y --yes -b --bootstrap-server --command-config --profile --resolve --timeout --confirm --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --confirm) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        *) [[ $cur == -* ]] || kind='file' ;;
        esac
        ;;
    'quotas describe')
        flags='--user --default-user --client-id --default-client-id --ip --default-ip -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --expect --watch --rounds --help'
        case $prev in
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --user | --client-id | --ip | -b | --bootstrap-server | --resolve | --timeout | --expect | --watch | --rounds) kind='none' ;;
        esac
        ;;
    'quotas alter')
        flags='--user --default-user --client-id --default-client-id --ip --default-ip --producer-rate --consumer-rate --request-percentage --mutation-rate --connection-rate --delete --dry-run -y --yes -b --bootstrap-server --command-config --profile --resolve --timeout --confirm --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --delete) words='producer_byte_rate consumer_byte_rate request_percentage controller_mutation_rate connection_creation_rate' flags='' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --confirm) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --user | --client-id | --ip | --producer-rate | --consumer-rate | --request-percentage | --mutation-rate | --connection-rate | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        esac
        ;;
    'quotas check')
        flags='--user --client-id --ip -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --expect --watch --rounds --help'
        case $prev in
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --user | --client-id | --ip | -b | --bootstrap-server | --resolve | --timeout | --expect | --watch | --rounds) kind='none' ;;
        esac
        ;;
    'users list')
        flags='--zookeeper --zk-tls-config-file -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --expect --watch --rounds --help'
        case $prev in
        --zk-tls-config-file) kind='file' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --zookeeper | -b | --bootstrap-server | --resolve | --timeout | --expect | --watch | --rounds) kind='none' ;;
        *) [[ $cur == -* ]] || kind='names-users' ;;
        esac
        ;;
    'users create')
        flags='--mechanism --iterations --password-file --zookeeper --zk-tls-config-file --dry-run -y --yes -b --bootstrap-server --command-config --profile --resolve --timeout --confirm --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --password-file) kind='file' ;;
        --zk-tls-config-file) kind='file' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --confirm) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --mechanism | --iterations | --zookeeper | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        *) [[ $cur == -* ]] || kind='names-users' ;;
        esac
        ;;
    'users alter')
        flags='--mechanism --iterations --password-file --zookeeper --zk-tls-config-file --dry-run -y --yes -b --bootstrap-server --command-config --profile --resolve --timeout --confirm --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --password-file) kind='file' ;;
        --zk-tls-config-file) kind='file' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --confirm) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --mechanism | --iterations | --zookeeper | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        *) [[ $cur == -* ]] || kind='names-users' ;;
        esac
        ;;
    'users delete')
        flags='--mechanism --zookeeper --zk-tls-config-file --dry-run -y --yes -b --bootstrap-server --command-config --profile --resolve --timeout --confirm --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --zk-tls-config-file) kind='file' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --confirm) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --mechanism | --zookeeper | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        *) [[ $cur == -* ]] || kind='names-users' ;;
        esac
        ;;
    'tokens create')
        flags='--renewer --max-lifetime -y --yes -b --bootstrap-server --command-config --profile --resolve --timeout --confirm --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --confirm) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --renewer | --max-lifetime | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        esac
        ;;
    'tokens describe')
        flags='--owner --show-hmac -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --expect --watch --rounds --help'
        case $prev in
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --owner | -b | --bootstrap-server | --resolve | --timeout | --expect | --watch | --rounds) kind='none' ;;
        esac
        ;;
    'tokens renew')
        flags='--period --dry-run -y --yes -b --bootstrap-server --command-config --profile --resolve --timeout --confirm --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --confirm) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --period | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        esac
        ;;
    'tokens expire')
        flags='--after --dry-run -y --yes -b --bootstrap-server --command-config --profile --resolve --timeout --confirm --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --confirm) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --after | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        esac
        ;;
    'dump-log dump-log')
        flags='--files -r --records --print-data-log --offset --time --key --max-bytes --max-message-size --producer-id --key-decoder --value-decoder --offsets-decoder --transaction-log-decoder --cluster-metadata-decoder --share-group-state-decoder --remote-log-metadata-decoder --verify-only --verify-index-only --index-sanity-check --compat --deep-iteration --skip-record-metadata --rebuild-index --summary --salvage --dry-run --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --files) kind='file' ;;
        --key-decoder) words='string json hex base64 int long' flags='' ;;
        --value-decoder) words='string json hex base64 int long' flags='' ;;
        --compat) words='kafka-2.8 kafka-3 kafka-4' flags='' ;;
        --salvage) kind='file' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --offset | --time | --key | --max-bytes | --max-message-size | --producer-id) kind='none' ;;
        *) [[ $cur == -* ]] || kind='file' ;;
        esac
        ;;
    'tls check')
        flags='--server-name --expires-after -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --server-name | --expires-after | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        esac
        ;;
    'loggers list')
        flags='--broker --match -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --expect --watch --rounds --help'
        case $prev in
        --broker) kind='names-brokers' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --match | -b | --bootstrap-server | --resolve | --timeout | --expect | --watch | --rounds) kind='none' ;;
        esac
        ;;
    'loggers set')
        flags='--broker --dry-run -y --yes -b --bootstrap-server --command-config --profile --resolve --timeout --confirm --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --broker) kind='names-brokers' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --confirm) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        esac
        ;;
    'loggers reset')
        flags='--broker --dry-run -y --yes -b --bootstrap-server --command-config --profile --resolve --timeout --confirm --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --broker) kind='names-brokers' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --confirm) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        esac
        ;;
    'metrics show')
        flags='--match --endpoint --broker -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --expect --watch --rounds --help'
        case $prev in
        --broker) kind='names-brokers' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --match | --endpoint | -b | --bootstrap-server | --resolve | --timeout | --expect | --watch | --rounds) kind='none' ;;
        esac
        ;;
    'metrics serve')
        flags='--port --listen --cache --window -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --port | --listen | --cache | --window | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        esac
        ;;
    'broker start')
        flags='--config -o --override --data-dir --port --zookeeper --embedded-zookeeper-port --secure --host --metrics-port --processes --port-step --stop-with --log-format --detach --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --config) kind='file' ;;
        --data-dir) kind='directory' ;;
        --log-format) words='text json' flags='' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        -o | --override | --port | --zookeeper | --embedded-zookeeper-port | --host | --metrics-port | --processes | --port-step | --stop-with) kind='none' ;;
        esac
        ;;
    'broker stop')
        flags='--data-dir --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --data-dir) kind='directory' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        esac
        ;;
    'broker status')
        flags='--data-dir --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --data-dir) kind='directory' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        esac
        ;;
    'broker check')
        flags='--config -o --override --data-dir --port --processes --port-step --connect --strict --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --config) kind='file' ;;
        --data-dir) kind='directory' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        -o | --override | --port | --processes | --port-step) kind='none' ;;
        esac
        ;;
    'broker bundle')
        flags='--data-dir --pid --config --log --output --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --data-dir) kind='directory' ;;
        --config) kind='file' ;;
        --log) kind='file' ;;
        --output) kind='file' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --pid) kind='none' ;;
        esac
        ;;
    'zookeeper start')
        flags='--data-dir --port --stop-with --log-format --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --data-dir) kind='directory' ;;
        --log-format) words='text json' flags='' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --port | --stop-with) kind='none' ;;
        esac
        ;;
    'zookeeper ls')
        flags='--zookeeper --zk-tls-config-file --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --zk-tls-config-file) kind='file' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --zookeeper) kind='none' ;;
        esac
        ;;
    'zookeeper get')
        flags='--zookeeper --zk-tls-config-file --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --zk-tls-config-file) kind='file' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --zookeeper) kind='none' ;;
        esac
        ;;
    'zookeeper stat')
        flags='--zookeeper --zk-tls-config-file --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --zk-tls-config-file) kind='file' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --zookeeper) kind='none' ;;
        esac
        ;;
    'export export')
        flags='--topic-regex --to --partitions --from --until --isolation --include-headers --headers --compression --target-file-size --on-data-loss --on-corrupt-batch --adopt --table --one-table --partition-by --time-zone --select --where --catalog --namespace --value --key --value-schema --key-schema --schema-registry --on-bad-record --dead-letter-topic --engine --processes --master --deploy-mode --conf --packages --archives --py-files --dry-run --no-progress --follow --every --metrics-port --metrics-listen -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --to) kind='directory' ;;
        --isolation) words='read_committed read_uncommitted' flags='' ;;
        --compression) words='zstd snappy none' flags='' ;;
        --on-data-loss) words='fail warn' flags='' ;;
        --on-corrupt-batch) words='fail skip' flags='' ;;
        --table) words='parquet iceberg delta' flags='' ;;
        --value) words='binary string json avro protobuf variant' flags='' ;;
        --key) words='binary string json avro protobuf variant' flags='' ;;
        --on-bad-record) words='fail dead-letter' flags='' ;;
        --dead-letter-topic) kind='names-topics' ;;
        --engine) words='local spark' flags='' ;;
        --deploy-mode) words='client cluster' flags='' ;;
        --py-files) kind='file' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --topic-regex | --partitions | --from | --until | --headers | --target-file-size | --partition-by | --time-zone | --select | --where | --catalog | --namespace | --value-schema | --key-schema | --schema-registry | --processes | --master | --conf | --packages | --archives | --every | --metrics-port | --metrics-listen | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        *) [[ $cur == -* ]] || kind='names-topics' ;;
        esac
        ;;
    'tables verify')
        flags='--partitions --from-start --isolation --catalog --namespace --no-progress -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --isolation) words='read_committed read_uncommitted' flags='' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --partitions | --catalog | --namespace | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        *) [[ $cur == -* ]] || kind='names-topics' ;;
        esac
        ;;
    'tables status')
        flags='--lag --check --catalog --namespace -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --lag | --catalog | --namespace | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        esac
        ;;
    'tables import')
        flags='--from-topic --compression --append --catalog --namespace --dry-run --no-progress -y --yes -b --bootstrap-server --command-config --profile --resolve --timeout --confirm --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --from-topic) kind='names-topics' ;;
        --compression) words='none gzip snappy lz4 zstd' flags='' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --confirm) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --catalog | --namespace | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        *) [[ $cur == -* || " ${given[*]:0:${#given[@]} - 1} " != *' '@()' '* ]] || kind='names-topics' ;;
        esac
        ;;
    'tables compact')
        flags='--target-file-size --compression --catalog --namespace --dry-run -y --yes --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --compression) words='zstd snappy none' flags='' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --target-file-size | --catalog | --namespace) kind='none' ;;
        esac
        ;;
    'tables profile')
        flags='--partitions --from --until --isolation --html --no-progress -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --isolation) words='read_committed read_uncommitted' flags='' ;;
        --html) kind='file' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --partitions | --from | --until | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        *) [[ $cur == -* ]] || kind='names-topics' ;;
        esac
        ;;
    'spark export')
        flags='--topic-regex --to --partitions --from --until --isolation --include-headers --headers --compression --target-file-size --on-data-loss --on-corrupt-batch --adopt --table --one-table --partition-by --time-zone --select --where --catalog --namespace --value --key --value-schema --key-schema --schema-registry --on-bad-record --dead-letter-topic --engine --processes --master --deploy-mode --conf --packages --archives --py-files --dry-run --no-progress --follow --every --metrics-port --metrics-listen -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --to) kind='directory' ;;
        --isolation) words='read_committed read_uncommitted' flags='' ;;
        --compression) words='zstd snappy none' flags='' ;;
        --on-data-loss) words='fail warn' flags='' ;;
        --on-corrupt-batch) words='fail skip' flags='' ;;
        --table) words='parquet iceberg delta' flags='' ;;
        --value) words='binary string json avro protobuf variant' flags='' ;;
        --key) words='binary string json avro protobuf variant' flags='' ;;
        --on-bad-record) words='fail dead-letter' flags='' ;;
        --dead-letter-topic) kind='names-topics' ;;
        --engine) words='local spark' flags='' ;;
        --deploy-mode) words='client cluster' flags='' ;;
        --py-files) kind='file' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        --topic-regex | --partitions | --from | --until | --headers | --target-file-size | --partition-by | --time-zone | --select | --where | --catalog | --namespace | --value-schema | --key-schema | --schema-registry | --processes | --master | --conf | --packages | --archives | --every | --metrics-port | --metrics-listen | -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        *) [[ $cur == -* ]] || kind='names-topics' ;;
        esac
        ;;
    'spark warmup')
        flags='--format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        esac
        ;;
    'profile add')
        flags='-b --bootstrap-server --command-config --property --cluster-id --pin-cluster-id --protected --read-only --default-format --default-timeout --replace --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --command-config) kind='file' ;;
        --default-format) words='table plain json jsonl yaml csv' flags='' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        -b | --bootstrap-server | --property | --cluster-id | --default-timeout) kind='none' ;;
        *) [[ $cur == -* ]] || kind='names-profiles' ;;
        esac
        ;;
    'profile use')
        flags='--none --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        *) [[ $cur == -* ]] || kind='names-profiles' ;;
        esac
        ;;
    'profile list')
        flags='--format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        esac
        ;;
    'profile show')
        flags='--format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        *) [[ $cur == -* ]] || kind='names-profiles' ;;
        esac
        ;;
    'profile rename')
        flags='--format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        *) [[ $cur == -* ]] || kind='names-profiles' ;;
        esac
        ;;
    'profile remove')
        flags='--format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        *) [[ $cur == -* ]] || kind='names-profiles' ;;
        esac
        ;;
    'mcp mcp')
        flags='--allow-writes --allow-root -b --bootstrap-server --command-config --profile --resolve --timeout --format --header --schema --human --no-color --quiet --debug --help'
        case $prev in
        --allow-root) kind='directory' ;;
        --command-config) kind='file' ;;
        --profile) kind='names-profiles' ;;
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        -b | --bootstrap-server | --resolve | --timeout) kind='none' ;;
        esac
        ;;
    'completion completion')
        flags='--format --header --schema --human --no-color --quiet --debug --help'
        words='bash zsh fish'
        case $prev in
        --format) words='table plain json jsonl yaml csv' flags='' ;;
        esac
        ;;
    esac
    case $kind in
    file) mapfile -t COMPREPLY < <(compgen -f -- "$cur") ;;
    directory) mapfile -t COMPREPLY < <(compgen -d -- "$cur") ;;
    none) ;;
    names-*)
        compopt +o filenames 2> /dev/null
        local line=${COMP_LINE:0:COMP_POINT}
        words=$(command kctl __names "${kind#names-}" "$piece" "$line" 2> /dev/null)
        [[ -z $words ]] || mapfile -t COMPREPLY <<< "$words"
        ;;
    *)
        [[ $cur == -* ]] && words=$flags
        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
        ;;
    esac
    [[ $kind == names-* ]] || COMPREPLY=("${COMPREPLY[@]#"${cur%"$piece"}"}")
}
complete -o filenames -F _kctl kctl

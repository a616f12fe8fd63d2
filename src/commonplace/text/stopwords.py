"""Function words of several languages: used as stop words, and to detect a text's language."""

from __future__ import annotations

# Stop words, left out of the index and of queries.
STOP_WORDS: dict[str, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in {
        "english": """
            a about after again all also am an and any are as at be because been before being but
            by can could did do does doing done for from had has have having he her here hers him
            his how i if in into is it its itself just me more most my no nor not of off on once
            only or other our ours out over own same she should so some such than that the their
            theirs them then there these they this those through to too under until up very was we
            were what when where which while who whom whose why will with would you your yours
            arent cant couldnt didnt doesnt dont hadnt hasnt havent isnt mustnt shouldnt wasnt
            werent wont wouldnt
            """,
        "german": """
            aber alle als also am an auch auf aus bei beim bin bis bist da dann das dass daß dem den
            denn der des dessen die dies diese diesem diesen dieser dieses doch dort du durch ein
            eine einem einen einer eines er es für hat hatte hatten habe haben hier ich ihm ihn ihr
            ihre im in ist ja kann kein keine können man mein meine mich mir mit nach nicht noch nur
            ob oder ohne sehr sein seine sich sie sind so über um und uns unser unter vom von vor
            war waren was weil wenn wer werden wie wir wird wo wurde wurden zu zum zur zwischen
            """,
        "french": """
            à au aux avec ce ces cette c'est dans de des du elle elles en est et été être eux il ils
            je la le les leur leurs lui ma mais me même mes moi mon ne nos notre nous on ont ou où
            par pas plus pour qu que qui quoi sa sans se ses si son sont sur ta te tes toi ton tu un
            une vos votre vous y était avait comme quand très
            """,
        "spanish": """
            a al algo como con cuando de del desde donde dos el él ella ellas ellos en entre era es
            esa ese eso esta está están este esto estos fue ha había han hasta hay la las le les lo
            los más me mi mis muy nada ni no nos o para pero por porque qué que quién se según ser
            si sí sin sobre son su sus también te tiene tu un una uno unos y ya yo
            """,
        "italian": """
            a ai al alla alle agli anche che chi ci come con cosa da dal dalla dei del della delle
            degli di dove e è ed era essere fu gli ha hai hanno ho i il in io la le lei lo loro lui
            ma mi mia mio ne nei nel nella nelle noi non o per perché più quale quando quella quello
            questa questo se sei si sia sono su sua sul sulla suo ti tra tu un una uno voi
            """,
        "portuguese": """
            a à ao aos as às até com como da das de dela dele do dos e é ela elas ele eles em entre
            era essa esse esta está este eu foi foram há isso isto já lhe mais mas me mesmo meu
            minha muito na nas não nem no nos nós o os ou para pela pelo por qual quando que quem se
            sem ser seu sua são só também te tem têm ter um uma você
            """,
        "dutch": """
            aan al alles als altijd ben bij dat de deze die dit door dus een en er ge geen had heb
            hebben heeft het hij hoe hun iets ik in is ja je kan kon kunnen maar me meer men met
            mij mijn moet na naar niet niets nog nu of om ons onze ook op over te tot u uit van veel
            voor want waren was wat we wel werd wie wij worden wordt zal ze zich zij zijn zo zonder
            zou
            """,
        "russian": """
            а без более бы был была были было быть в вам вас во вот все всё вы где да для до его ее
            её если есть еще ещё же за здесь и из или им их к как когда кто ли мне мой моя мы на над
            не нет ни но ну о об он она они оно от очень по под при про с со так также там те тебя
            то того тоже только том ты у уже что чтобы эта эти это этот я
            """,
        "arabic": """
            في من على إلى الى عن أن ان إن هذا هذه ذلك تلك التي الذي الذين هو هي هم أنا انا نحن أنت
            كان كانت ما لا لم لن قد ثم أو او و يا كل بعد قبل عند مع هل كما
            """,
        "greek": """
            ο η το οι τα του της των τον την τους τις και κι να σε στο στη στην στον στα με για από
            που πως θα δεν δε μη μην είναι ήταν ένα ένας μια μία αυτό αυτή αυτός εγώ εσύ μου σου ως
            ή αν τι
            """,
        "hindi": """
            का के की को में से पर है हैं था थे थी और या भी ही यह वह ये वे इस उस एक ने तो कि जो हो कर
            मैं हम तुम आप मेरा मेरी
            """,
    }.items()
}

# Function words of other languages that are also English words, so they do not show a language.
_ENGLISH_TOO = "bin come door dos dove em era hat hay man men per plus sin son ton want war ya"
ENGLISH_TOO: frozenset[str] = frozenset(_ENGLISH_TOO.split())

# Question words, left out of queries only.
QUESTION_WORDS: dict[str, frozenset[str]] = {
    language: frozenset(words.split())
    for language, words in {
        "english": """
            anybody anyone anything ever know let many might much must please really remember say
            shall tell thing things us want
            """,
        "german": """
            bitte gibt haben hast kannst mal sag wann warum was welche welcher welches wem wen wer
            weshalb wie wieso wo woher wohin zeig
            """,
        "french": "combien comment donne est-ce montre pourquoi quand quel quelle quels quelles",
        "spanish": "cómo cuál cuáles cuándo cuánto cuántos dónde favor quiénes",
        "italian": "dammi mostra quali quanti quanto favore",
        "portuguese": "favor onde porque quais quantos quanto",
        "dutch": "graag waar waarom wanneer welk welke hoeveel",
        "russian": "зачем какая какие какого какой какую куда откуда пожалуйста почему сколько чем",
        "arabic": "متى أين اين كيف لماذا ماذا كم أي",
        "greek": "πού πότε ποιος ποια ποιο γιατί πόσο",
        "hindi": "क्या कब कहाँ कहां कौन क्यों कैसे कितना कितने",
    }.items()
}

# Pairs of characters that carry only grammar or a question, left out of queries.
QUESTION_PAIRS: frozenset[str] = frozenset(
    pair
    for pairs in (
        # Japanese
        """です ます すか たか のか した して され れた って った てい いる いま から まで には では
        いつ どこ だれ なに なぜ とは こと もの これ それ""",
        # Chinese
        "什么 怎么 哪里 哪个 为什 么时 多少 是什 我们 他们 是谁",
        # Korean
        "습니 니다 니까 어디 언제 무엇 누구 인가 에서 으로 까지 부터 했습 합니",
    )
    for pair in pairs.split()
)
